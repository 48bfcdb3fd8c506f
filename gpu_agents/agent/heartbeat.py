"""Heartbeats: the observed state up, the desired state down, at once when there is news, else held by the server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from gpu_agents.agent.api import AgentApi, Refused, Unreachable
from gpu_agents.agent.backoff import Backoff
from gpu_agents.agent.identity import inventory_of
from gpu_agents.agent.isolation.node import NodeIsolation
from gpu_agents.agent.settings import AgentSettings, DataDirectory
from oolong.contracts.agent import (
    PROTOCOL,
    DesiredAttempt,
    HeartbeatReply,
    HeartbeatRequest,
    Inventory,
    ObservedJob,
)
from oolong.contracts.lifecycle import JobState

log = logging.getLogger(__name__)

REVOKED = "node_revoked"
LOOK_SECONDS = 0.25  # how often local changes are looked for while a heartbeat waits at the server
INVENTORY_SECONDS = 30.0
UNHELD_POLL_SECONDS = 1.0  # pause after a heartbeat that the server did not hold


class NodeRevoked(Exception):
    """Those who manage the pool revoked this node's credential; the message is the control plane's."""


class Heart:
    """`observed` gives the jobs as they are now; `work` says whether there is something to do on this node."""

    def __init__(
        self,
        settings: AgentSettings,
        data: DataDirectory,
        api: AgentApi,
        *,
        observed: Callable[[], list[ObservedJob]],
        work: Callable[[], bool],
        isolation: NodeIsolation,
    ) -> None:
        self._settings = settings
        self._data = data
        self._api = api
        self._observed = observed
        self._work = work
        self._isolation = isolation
        self._inventory: tuple[float, Inventory] | None = None
        self._started_at = time.time()
        self._reported: object = None  # what the server knows by the last heartbeat that arrived
        self._nudged = asyncio.Event()
        self._backoff = Backoff(first=0.5, most=10.0)

    def nudge(self) -> None:
        """Look for news now."""
        self._nudged.set()

    async def beat(self, *, desired: list[DesiredAttempt], revision: int) -> HeartbeatReply | None:
        """One heartbeat. Goes out at once when there is news, otherwise waits at the server for some.

        Returns None when the server is away, or when something changed here before it answered. Raises NodeRevoked.
        """
        self._nudged.clear()
        jobs = self._observed()
        news = _news(jobs) != self._reported
        request = HeartbeatRequest(
            inventory=self._take_inventory(), jobs=jobs, started_at=self._started_at, protocol=PROTOCOL
        )
        try:
            if news:
                reply = await self._api.heartbeat(request)
            else:
                answer = await self._unless_changed(request, desired=desired, revision=revision)
                if answer is None:
                    return None
                reply = answer
        except (Unreachable, Refused) as error:
            if isinstance(error, Refused) and error.code == REVOKED:
                raise NodeRevoked(error.detail) from error
            wait = self._backoff.failed(getattr(error, "retry_after", None))
            log.warning("no heartbeat, again in %.1f s: %s%s", wait, error, _advice(error, self._data))
            await self._change(timeout=wait)
            return None
        self._backoff.succeeded()
        self._reported = _news(jobs)
        return reply

    async def _unless_changed(
        self, request: HeartbeatRequest, *, desired: list[DesiredAttempt], revision: int
    ) -> HeartbeatReply | None:
        """A heartbeat held by the server until there is something new, given up when something changes here."""
        began = time.monotonic()
        call = asyncio.create_task(
            self._api.heartbeat(request, wait_seconds=self._settings.long_poll_seconds, revision=revision),
            name="heartbeat",
        )
        change = asyncio.create_task(self._change(), name="local change")
        try:
            await asyncio.wait({call, change}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                return None
            reply = await call
            if time.monotonic() - began < UNHELD_POLL_SECONDS and reply.attempts == desired:
                await asyncio.wait({change}, timeout=UNHELD_POLL_SECONDS)
            return reply
        finally:
            for task in (call, change):
                task.cancel()
            await asyncio.gather(call, change, return_exceptions=True)

    async def _change(self, timeout: float | None = None) -> None:
        """Return when the node has news to report or something to do, or after the timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while deadline is None or time.monotonic() < deadline:
            try:
                # Not asyncio.wait_for: before Python 3.12 it may swallow a cancellation that meets a nudge.
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._nudged.wait()
                self._nudged.clear()
            except TimeoutError:
                pass
            away = timeout is not None
            if self._work() or (not away and _news(self._observed()) != self._reported):
                return

    def _take_inventory(self) -> Inventory:
        if self._inventory is None or time.monotonic() - self._inventory[0] > INVENTORY_SECONDS:
            self._inventory = (time.monotonic(), inventory_of(self._settings, self._isolation))
        return self._inventory[1]


def _advice(error: Exception, data: DataDirectory) -> str:
    if isinstance(error, Refused) and error.status in (401, 403):
        return (
            f"; the control plane does not know this node's credential (any more): stop the agent, remove {data.node}, "
            "and enroll again with a new token"
        )
    return ""


def _news(jobs: list[ObservedJob]) -> object:
    """What is worth a heartbeat at once: states and ends, and how far the files of ended jobs are."""
    return [
        (job.job_id, job.state, job.incarnation, job.pid, job.exit_code, job.reason)
        + (
            (tuple((file.file, file.bytes, file.shipped) for file in job.outbox),)
            if job.state is JobState.EXITED
            else ()
        )
        for job in jobs
    ]
