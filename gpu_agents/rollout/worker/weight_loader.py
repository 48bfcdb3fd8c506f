"""Load published weights into the engine: fetch, verify, pause, load, resume, probe, acknowledge."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from gpu_agents.rollout.engines.client import Adapter, EngineClient, Sampling
from gpu_agents.rollout.engines.errors import EngineError, EngineUnavailable
from gpu_agents.rollout.worker.config import WorkerConfig
from gpu_agents.rollout.worker.engine_handle import EngineHandle
from gpu_agents.rollout.worker.manifest import ExpectedTensors, InvalidWeights, check_weights
from gpu_agents.rollout.worker.weight_fetcher import WeightFetcher
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
from oolong.system.rpc import RpcClient

log = logging.getLogger(__name__)

POLL_SECONDS = 20.0
PROBE_TOKENS = 32  # the acknowledgement and the next load wait for them


@dataclass(frozen=True, kw_only=True)
class Load:
    """One finished load, for the worker's metrics."""

    version: int
    timings: LoadTimings
    delay_seconds: float  # from the notification to the acknowledgement


class WeightLoader:
    """Keeps one engine at the newest version. Hold `pinned` to prevent loads (during an evaluation)."""

    def __init__(
        self,
        *,
        options: WorkerConfig,
        engine: EngineHandle,
        controller: RpcClient,
        expected: ExpectedTensors,
        probe_prompt: list[int],
        loads: list[Load],
        fetcher: WeightFetcher | None = None,  # where the weights are on another node
    ) -> None:
        self._fetcher = fetcher
        self._options = options
        self._engine = engine
        self._controller = controller
        self._expected = expected
        self._probe_prompt = probe_prompt
        self._loads = loads
        self.pinned = asyncio.Lock()
        self._seen = -1  # newest version loaded or tried
        self._adapters_loaded = 0

    async def keep_current(self, client: EngineClient) -> None:
        """Load each new version until the run ends. Raises EngineUnavailable if the engine crashes."""
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
                if state.newest_version > self._seen:  # an evaluation may have loaded it before
                    await self._load_newest(client, learned_at)

    async def load_version(self, weights: PublishedWeights) -> None:
        """Load an earlier version for an evaluation; the caller holds `pinned`, and calls `load_latest` afterwards."""
        await self.load(self._engine.client, weights)

    async def load(self, client: EngineClient, weights: PublishedWeights) -> None:
        """Load this version without a claim and without an acknowledgement."""
        await self._load(client, weights, time.monotonic())

    async def load_latest(self) -> None:
        """Load the latest version after an evaluation; the caller holds `pinned`."""
        await self._load_newest(self._engine.client, time.monotonic())

    async def _load_newest(self, client: EngineClient, learned_at: float) -> None:
        claim = await self._controller.call(
            "load_claim", LoadClaimRequest(worker_id=self._options.worker_id), LoadClaimReply
        )
        if claim.weights is not None:
            self._seen = claim.weights.version
            await self._load_and_acknowledge(client, claim.weights, learned_at)

    async def _load_and_acknowledge(
        self, client: EngineClient, weights: PublishedWeights, learned_at: float
    ) -> None:
        if self._options.skip_loads and self._engine.loaded_version >= 0:
            self._engine.loaded_version = weights.version
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
        if self._fetcher is None:
            return await self._load_directory(client, weights, learned_at)
        async with self._fetcher.hold(weights) as local:
            return await self._load_directory(client, local, learned_at)

    async def _load_directory(
        self, client: EngineClient, weights: PublishedWeights, learned_at: float
    ) -> LoadTimings:
        await asyncio.to_thread(check_weights, weights, self._expected)
        if self._options.adapters:
            return await self._load_adapter(client, weights, learned_at)
        if not self._options.interruptible:
            await self._engine.drain()
        paused = time.monotonic()
        self._engine.timeline.pause()
        if self._options.pause_mode == "abort":
            await self._engine.clear()
        await client.pause(self._options.pause_mode)
        try:
            loading = time.monotonic()
            await client.update_weights(
                weights.directory, version=weights.version, flush_cache=self._options.flush_cache
            )
            loaded = time.monotonic()
            self._engine.loaded_version = weights.version
        finally:
            # Also after a failed load: the engine continues with the weights that it has.
            await client.resume()
            if self._engine.loaded_version >= 0:
                self._engine.open(client, self._engine.loaded_version)
        continued = time.monotonic()
        self._engine.counters.loaded(load_seconds=loaded - loading, paused_seconds=continued - paused)
        return LoadTimings(
            wait_seconds=loading - learned_at,
            paused_seconds=continued - paused,
            load_seconds=loaded - loading,
        )

    async def _load_adapter(
        self, client: EngineClient, weights: PublishedWeights, learned_at: float
    ) -> LoadTimings:
        """Load beside the running requests, then let them continue with the new adapter, then unload the old one.

        The engine is not paused: unloading an adapter that a paused request uses would never return.
        """
        old, self._adapters_loaded = self._engine.adapter, self._adapters_loaded + 1
        adapter = Adapter(
            name=f"v{weights.version:08d}-{self._adapters_loaded}",
            version=weights.version,
        )
        loading = time.monotonic()
        await client.load_adapter(adapter, weights.directory)
        loaded = time.monotonic()
        if not self._options.interruptible:
            await self._engine.drain()
        paused = time.monotonic()
        self._engine.timeline.pause()
        await self._engine.clear()
        self._engine.open(client, weights.version, adapter=adapter)
        continued = time.monotonic()
        self._engine.counters.loaded(load_seconds=loaded - loading, paused_seconds=continued - paused)
        if old is not None:
            await client.unload_adapter(old)
        return LoadTimings(
            wait_seconds=loading - learned_at,
            paused_seconds=continued - paused,
            load_seconds=loaded - loading,
        )

    async def _probe(self, client: EngineClient, version: int) -> Probe | None:
        """Sample a fixed greedy continuation, entirely at this version."""
        generation = await client.generate(
            self._probe_prompt,
            Sampling(max_new_tokens=PROBE_TOKENS, temperature=0.0, ignore_eos=True),
            rid=f"probe-{version:08d}-{time.monotonic_ns():020d}",
            only_version=version if self._options.loads_between_requests else None,
            adapter=self._engine.adapter,
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
