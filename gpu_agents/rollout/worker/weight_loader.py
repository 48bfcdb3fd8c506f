"""New weights into the engine the moment they are announced: check, pause, load, continue, probe, acknowledge."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from gpu_agents.channel import Peer
from gpu_agents.rollout.engines.client import EngineClient, Sampling
from gpu_agents.rollout.engines.errors import EngineError, EngineUnavailable
from gpu_agents.rollout.worker.config import WorkerConfig
from gpu_agents.rollout.worker.engine_handle import EngineHandle
from gpu_agents.rollout.worker.manifest import ExpectedTensors, InvalidWeights, check_weights
from oolong.contracts.rollout import (
    Ack,
    AckRequest,
    LoadClaimReply,
    LoadClaimRequest,
    LoadTimings,
    Probe,
    PublishedWeights,
    StateReply,
    StateRequest,
)

log = logging.getLogger(__name__)

POLL_SECONDS = 20.0
PROBE_TOKENS = 32  # a load's acknowledgement, and the next load, wait for them


@dataclass(frozen=True, kw_only=True)
class Load:
    """One finished load, for the worker's metrics."""

    version: int
    timings: LoadTimings
    delay_seconds: float  # learned of the version -> acknowledged


class WeightLoader:
    """Keeps one engine at the newest version. `pinned` is held while nothing may be loaded (an evaluation)."""

    def __init__(
        self,
        *,
        options: WorkerConfig,
        slot: EngineHandle,
        controller: Peer,
        expected: ExpectedTensors,
        probe_prompt: list[int],
        loads: list[Load],
    ) -> None:
        self._options = options
        self._slot = slot
        self._controller = controller
        self._expected = expected
        self._probe_prompt = probe_prompt
        self._loads = loads
        self.pinned = asyncio.Lock()
        self._seen = -1  # newest version taken over, or tried

    async def keep_current(self, client: EngineClient) -> None:
        """Load every newest version until the run has ended. Raises EngineUnavailable if the engine dies of it."""
        self._seen = -1
        while True:
            state = await self._controller.call(
                "state",
                StateRequest(
                    after_version=self._seen, wait_seconds=POLL_SECONDS, worker_id=self._options.worker_id
                ),
                StateReply,
            )
            if state.ended:
                return
            if state.newest_version <= self._seen:
                continue
            learned_at = time.monotonic()
            async with self.pinned:
                if state.newest_version > self._seen:  # an evaluation may have come back to it meanwhile
                    await self._take_newest_over(client, learned_at)

    async def load_version(self, weights: PublishedWeights) -> None:
        """Load an earlier version for an evaluation; the caller holds `pinned`, and returns to the newest."""
        await self.load(self._slot.client, weights)

    async def load(self, client: EngineClient, weights: PublishedWeights) -> None:
        """Load this version, whatever is the newest, and tell nobody."""
        await self._load(client, weights, time.monotonic())

    async def load_latest(self) -> None:
        """What the engine missed while it was leased; the caller holds `pinned`."""
        await self._take_newest_over(self._slot.client, time.monotonic())

    async def _take_newest_over(self, client: EngineClient, learned_at: float) -> None:
        claim = await self._controller.call(
            "load_claim", LoadClaimRequest(worker_id=self._options.worker_id), LoadClaimReply
        )
        if claim.weights is not None:
            self._seen = claim.weights.version
            await self._take_over(client, claim.weights, learned_at)

    async def _take_over(self, client: EngineClient, weights: PublishedWeights, learned_at: float) -> None:
        if self._options.skip_loads and self._slot.loaded_version >= 0:
            self._slot.loaded_version = weights.version
            return
        try:
            timings = await self._load(client, weights, learned_at)
            probe = await self._probe(client, weights.version)
        except EngineUnavailable:
            raise
        except (InvalidWeights, EngineError) as error:
            log.error("version %d was not loaded: %s", weights.version, error)
            await self._acknowledge(weights.version, ok=False, message=str(error))
            return
        await self._acknowledge(weights.version, ok=True, probe=probe, timings=timings)
        self._loads.append(
            Load(version=weights.version, timings=timings, delay_seconds=time.monotonic() - learned_at)
        )

    async def _load(self, client: EngineClient, weights: PublishedWeights, learned_at: float) -> LoadTimings:
        checking = time.monotonic()
        await asyncio.to_thread(check_weights, weights, self._expected)
        checked = time.monotonic()
        if not self._options.interruptible:
            await self._slot.drain()
        paused = time.monotonic()
        if self._options.pause_mode == "abort":
            await self._slot.clear()
        await client.pause(self._options.pause_mode)
        try:
            loading = time.monotonic()
            await client.update_weights(
                weights.directory, version=weights.version, flush_cache=self._options.flush_cache
            )
            loaded = time.monotonic()
            self._slot.loaded_version = weights.version
        finally:
            # Also after a refusal: the engine goes on with what it has, rather than stand still.
            await client.resume()
            if self._slot.loaded_version >= 0:
                self._slot.open(client, self._slot.loaded_version)
        continued = time.monotonic()
        self._slot.meters.loaded(load_seconds=loaded - loading, paused_seconds=continued - paused)
        return LoadTimings(
            wait_seconds=loading - learned_at,
            check_seconds=checked - checking,
            paused_seconds=continued - paused,
            load_seconds=loaded - loading,
        )

    async def _probe(self, client: EngineClient, version: int) -> Probe | None:
        """A fixed greedy continuation, all of it under this version."""
        generation = await client.generate(
            self._probe_prompt,
            Sampling(max_new_tokens=PROBE_TOKENS, temperature=0.0, ignore_eos=True),
            rid=f"probe-{version:08d}-{time.monotonic_ns():020d}",
            only_version=version if self._options.loads_between_requests else None,
        )
        if set(generation.versions) != {version}:
            raise EngineError(
                f"the probe of version {version} was sampled by {sorted(set(generation.versions))}"
            )
        return Probe(
            prompt_token_ids=self._probe_prompt, token_ids=generation.token_ids, logprobs=generation.logprobs
        )

    async def _acknowledge(
        self,
        version: int,
        *,
        ok: bool,
        message: str = "",
        probe: Probe | None = None,
        timings: LoadTimings | None = None,
    ) -> None:
        await self._controller.call(
            "ack",
            AckRequest(
                worker_id=self._options.worker_id,
                version=version,
                ok=ok,
                message=message,
                probe=probe,
                timings=timings or LoadTimings(),
            ),
            Ack,
        )
