"""The place where this worker's engine is: which incarnation serves now, what it has loaded, who may send."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gpu_agents.rollout.engines.client import EngineClient, Generation, Sampling
from gpu_agents.rollout.engines.errors import EngineUnavailable
from gpu_agents.rollout.worker.engine_counters import EngineCounters

MAX_ENGINE_LOSSES_PER_REQUEST = 4
ABORT_AGAIN_SECONDS = 0.1


class EngineHandle:
    """Requests wait here while there is no engine, or while one is kept clear for a load.

    `loads_between_requests` says that a load never happens inside a request (SEMANTICS section 4: abort, and the mode
    that does not interrupt): then each request is of one version, also on a server that reports no spans.
    """

    def __init__(self, meters: EngineCounters, *, loads_between_requests: bool = False) -> None:
        self.meters = meters
        self._loads_between_requests = loads_between_requests
        self.loaded_version = -1
        self._client: EngineClient | None = None
        self._pauses = 0  # each retracts what runs, which says nothing about memory
        self._open = asyncio.Event()
        self._gone = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    @property
    def client(self) -> EngineClient:
        """Of the engine that serves now. Raises EngineUnavailable."""
        if self._client is None:
            raise EngineUnavailable("there is no engine at the moment")
        return self._client

    def open(self, client: EngineClient, version: int) -> None:
        self._client = client
        self.loaded_version = version
        self._pauses += 1
        self._gone.clear()
        self._open.set()
        self.meters.open()

    def close(self) -> None:
        """The engine is gone: requests wait for the next one."""
        self._open.clear()
        self._client = None
        self.loaded_version = -1
        self._gone.set()

    async def wait_gone(self) -> None:
        """Until the engine that serves now is gone."""
        await self._gone.wait()

    async def wait_open(self) -> None:
        await self._open.wait()

    async def drain(self) -> None:
        """Let nothing new in, and wait until what runs has ended by itself."""
        self._open.clear()
        await self._quiet.wait()

    async def clear(self) -> None:
        """Let nothing new in, and take back what runs: every request returns with the tokens that it has.

        One that the engine does not know yet, for it is still on its way, is asked again for.
        """
        self._open.clear()
        while not self._quiet.is_set():
            if self._client is not None:
                await self._client.abort_all()
            try:
                async with asyncio.timeout(ABORT_AGAIN_SECONDS):  # wait_for may lose a cancellation
                    await self._quiet.wait()
            except TimeoutError:
                continue

    async def generate(self, input_ids: list[int], sampling: Sampling, *, rid: str) -> Generation:
        async with self._request() as client:
            pauses_before = self._pauses
            only_version = self.loaded_version if self._loads_between_requests else None
            generation = await client.generate(input_ids, sampling, rid=rid, only_version=only_version)
        self.meters.request_returned(
            input_tokens=len(input_ids),
            cached_tokens=generation.cached_tokens,
            generated_tokens=len(generation.token_ids),
            retractions=max(generation.retractions - (self._pauses - pauses_before), 0),
            interrupted=bool(
                generation.retractions or (generation.finish == "abort" and generation.token_ids)
            ),
        )
        return generation

    async def prefill(self, input_ids: list[int], *, rid: str) -> None:
        """Have the input's keys and values computed, for those who go on from it."""
        async with self._request() as client:
            prefill = await client.prefill(input_ids, rid=rid)
        self.meters.request_returned(
            input_tokens=len(input_ids),
            cached_tokens=prefill.cached_tokens,
            generated_tokens=0,
            retractions=0,
            interrupted=False,
        )

    @contextlib.asynccontextmanager
    async def _request(self) -> AsyncIterator[EngineClient]:
        """The engine, once it takes requests; `drain` and `clear` wait for the end. Raises EngineUnavailable."""
        while not self._open.is_set():  # it may have closed again between the event and this task's turn
            await self._open.wait()
        if self._client is None:
            raise EngineUnavailable("the engine ended before the request was sent")
        self._quiet.clear()
        self.meters.request_started()
        try:
            yield self._client
        finally:
            self.meters.request_ended()
            if self.meters.live_requests == 0:
                self._quiet.set()

    async def abort(self, rids: list[str]) -> None:
        """Ask for partial results; a request that the engine does not know yet needs asking again."""
        client = self._client
        if client is not None:
            await asyncio.gather(*(client.abort(rid) for rid in rids))
