"""Handle of the worker's engine: the incarnation that serves, its loaded version, and admission of requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gpu_agents.rollout.engines.client import Adapter, EngineClient, Generation, Sampling
from gpu_agents.rollout.engines.errors import EngineUnavailable
from gpu_agents.rollout.worker.engine_counters import EngineCounters
from gpu_agents.rollout.worker.timeline import Segment, TimelineRecorder

MAX_ENGINE_LOSSES_PER_REQUEST = 4
ABORT_AGAIN_SECONDS = 0.1


class EngineHandle:
    """Requests wait here while no engine serves, or while a load keeps requests out.

    With `loads_between_requests`, weights load only while no request runs (SEMANTICS section 4: abort, and the mode
    without interruption). Each request then has one version, also on a server that reports no spans.
    """

    def __init__(self, counters: EngineCounters, *, loads_between_requests: bool = False) -> None:
        self.counters = counters
        self.timeline = TimelineRecorder()
        self._loads_between_requests = loads_between_requests
        self.loaded_version = -1
        self.adapter: Adapter | None = None  # of a LoRA run: the loaded version
        self._client: EngineClient | None = None
        self._pauses = 0  # each pause retracts the running requests, which says nothing about memory
        self._open = asyncio.Event()
        self._closed = asyncio.Event()
        self._no_requests = asyncio.Event()
        self._no_requests.set()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    @property
    def client(self) -> EngineClient:
        """Client of the engine that serves now. Raises EngineUnavailable."""
        if self._client is None:
            raise EngineUnavailable("there is no engine at the moment")
        return self._client

    def open(self, client: EngineClient, version: int, *, adapter: Adapter | None = None) -> None:
        self._client = client
        self.loaded_version = version
        self.adapter = adapter
        self._pauses += 1
        self._closed.clear()
        self._open.set()
        self.counters.open()
        self.timeline.open(version)

    def close(self) -> None:
        """The engine has ended: requests wait for the next one."""
        self._open.clear()
        self._client = None
        self.loaded_version = -1
        self.adapter = None
        self._closed.set()
        self.timeline.close()

    async def wait_closed(self) -> None:
        """Wait until the current engine has ended."""
        await self._closed.wait()

    async def wait_open(self) -> None:
        await self._open.wait()

    async def drain(self) -> None:
        """Admit no new requests, and wait until the running ones complete."""
        self._open.clear()
        await self._no_requests.wait()

    async def clear(self) -> None:
        """Admit no new requests, and abort the running ones: each returns the tokens that it has.

        The abort repeats, because a request may still be on its way to the engine.
        """
        self._open.clear()
        while not self._no_requests.is_set():
            if self._client is not None:
                await self._client.abort_all()
            try:
                async with asyncio.timeout(ABORT_AGAIN_SECONDS):  # asyncio.wait_for may lose a cancellation
                    await self._no_requests.wait()
            except TimeoutError:
                continue

    async def generate(
        self, input_ids: list[int], sampling: Sampling, *, rid: str, group_id: str = "", member: int = -1
    ) -> Generation:
        async with self._request(group_id, member) as (client, segment):
            pauses_before = self._pauses
            only_version = self.loaded_version if self._loads_between_requests else None
            generation = await client.generate(
                input_ids, sampling, rid=rid, only_version=only_version, adapter=self.adapter
            )
            segment.outcome = "interrupted" if generation.finish == "abort" else "finished"
        self.counters.request_returned(
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
        """Compute the input's keys and values, so that requests with this prefix find them in the cache."""
        async with self._request() as (client, _):
            prefill = await client.prefill(input_ids, rid=rid, adapter=self.adapter)
        self.counters.request_returned(
            input_tokens=len(input_ids),
            cached_tokens=prefill.cached_tokens,
            generated_tokens=0,
            retractions=0,
            interrupted=False,
        )

    @contextlib.asynccontextmanager
    async def _request(
        self, group_id: str = "", member: int = -1
    ) -> AsyncIterator[tuple[EngineClient, Segment]]:
        """Wait until the engine takes requests. `drain` and `clear` wait for this block. Raises EngineUnavailable."""
        while not self._open.is_set():  # it may close again before this task runs
            await self._open.wait()
        if self._client is None:
            raise EngineUnavailable("the engine ended before the request was sent")
        self._no_requests.clear()
        self.counters.request_started()
        segment = self.timeline.begin(group_id, member)
        try:
            yield self._client, segment
        finally:
            self.counters.request_ended()
            self.timeline.end(segment)
            if self.counters.live_requests == 0:
                self._no_requests.set()

    async def abort(self, rids: list[str]) -> None:
        """Abort requests, which return partial results. Repeat it for a request still on its way to the engine."""
        client = self._client
        if client is not None:
            await asyncio.gather(*(client.abort(rid) for rid in rids))
