"""Heartbeats: report the observed state, receive the desired state. Unchanged state is reported by long poll."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable

import msgspec

from gpu_agents.agent.api import AgentApi, ApiError, ServerUnavailable
from gpu_agents.agent.identity import inventory_of
from gpu_agents.agent.isolation.node import NodeIsolation
from gpu_agents.agent.settings import AgentSettings, DataDirectory
from gpu_agents.agent.slot_readings import CpuReadings
from oolong.contracts.agent import (
    PROTOCOL,
    DesiredAttempt,
    HeartbeatReply,
    HeartbeatRequest,
    Inventory,
    ObservedJob,
)
from oolong.contracts.lifecycle import JobState
from oolong.system.backoff import Backoff

log = logging.getLogger(__name__)

REVOKED = "node_revoked"
SCAN_SECONDS = 0.25  # interval between checks for local changes during a long poll
INVENTORY_SECONDS = 30.0
UNHELD_POLL_SECONDS = 1.0  # pause after a heartbeat that the server did not hold


class NodeRevoked(Exception):
    """This node's credential was revoked. The message comes from the control plane."""


class HeartbeatLoop:
    """`observed` returns the jobs' current state; `work` returns whether this node has something to do; `held` returns
    the slots of each job."""

    def __init__(
        self,
        settings: AgentSettings,
        data: DataDirectory,
        api: AgentApi,
        *,
        observed: Callable[[], list[ObservedJob]],
        work: Callable[[], bool],
        held: Callable[[], dict[str, list[str]]],
        isolation: NodeIsolation,
    ) -> None:
        self._settings = settings
        self._data = data
        self._api = api
        self._observed = observed
        self._work = work
        self._held = held
        self._cpu_readings = CpuReadings()
        self._isolation = isolation
        self._inventory: tuple[float, Inventory] | None = None
        self._started_at = time.time()
        self._reported: object = None  # the state in the last heartbeat that succeeded
        self._woken = asyncio.Event()
        self._backoff = Backoff(initial=0.5, maximum=10.0)

    def wake(self) -> None:
        """Check for local changes now."""
        self._woken.set()

    def report_end(self, ends_at: float) -> None:
        """Report now that the node's allocation ends then."""
        allocation = dataclasses.replace(self._settings.allocation, ends_at=ends_at)
        self._settings = dataclasses.replace(self._settings, allocation=allocation)
        self._inventory, self._reported = None, None
        self.wake()

    async def send(self, *, desired: list[DesiredAttempt], revision: int) -> HeartbeatReply | None:
        """Send one heartbeat: at once if the state changed, otherwise as a long poll.

        Returns None if the server is unavailable, or if local state changed before it replied. Raises NodeRevoked.
        """
        self._woken.clear()
        jobs = self._observed()
        changed = _reportable(jobs) != self._reported
        request = HeartbeatRequest(
            inventory=self._current_inventory(), jobs=jobs, started_at=self._started_at, protocol=PROTOCOL
        )
        try:
            if changed:
                reply = await self._api.heartbeat(request)
            else:
                answer = await self._long_poll(request, desired=desired, revision=revision)
                if answer is None:
                    return None
                reply = answer
        except (ServerUnavailable, ApiError) as error:
            if isinstance(error, ApiError) and error.code == REVOKED:
                raise NodeRevoked(error.detail) from error
            wait = self._backoff.failed(getattr(error, "retry_after", None))
            log.warning("heartbeat failed, retrying in %.1f s: %s%s", wait, error, _hint(error, self._data))
            await self._wait_for_change(timeout=wait)
            return None
        self._backoff.succeeded()
        self._reported = _reportable(jobs)
        return reply

    async def _long_poll(
        self, request: HeartbeatRequest, *, desired: list[DesiredAttempt], revision: int
    ) -> HeartbeatReply | None:
        """Send a long-poll heartbeat; cancel it when local state changes."""
        began = time.monotonic()
        call = asyncio.create_task(
            self._api.heartbeat(request, wait_seconds=self._settings.long_poll_seconds, revision=revision),
            name="heartbeat",
        )
        change = asyncio.create_task(self._wait_for_change(), name="local change")
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

    async def _wait_for_change(self, timeout: float | None = None) -> None:
        """Return when there is a change to report or work to do, or after the timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while deadline is None or time.monotonic() < deadline:
            try:
                # Not asyncio.wait_for: before Python 3.12 it may swallow a cancellation that coincides with a wake-up.
                async with asyncio.timeout(SCAN_SECONDS):
                    await self._woken.wait()
                self._woken.clear()
            except TimeoutError:
                pass
            backing_off = timeout is not None
            if self._work() or (not backing_off and _reportable(self._observed()) != self._reported):
                return

    def _current_inventory(self) -> Inventory:
        if self._inventory is None or time.monotonic() - self._inventory[0] > INVENTORY_SECONDS:
            found = inventory_of(self._settings, self._isolation)
            if self._settings.device == "cpu":
                slots = self._cpu_readings.take(found.slots, self._held())
                found = msgspec.structs.replace(found, slots=slots)
            self._inventory = (time.monotonic(), found)
        return self._inventory[1]


def _hint(error: Exception, data: DataDirectory) -> str:
    if isinstance(error, ApiError) and error.status in (401, 403):
        return (
            f"; the control plane does not know this node's credential: stop the agent, remove {data.node}, "
            "and enroll again with a new token"
        )
    return ""


def _reportable(jobs: list[ObservedJob]) -> object:
    """The part of the state whose change triggers a heartbeat: states, ends, and shipped bytes of ended jobs."""
    return [
        (job.job_id, job.state, job.incarnation, job.pid, job.exit_code, job.reason)
        + (
            (tuple((file.file, file.bytes, file.shipped) for file in job.outbox),)
            if job.state is JobState.EXITED
            else ()
        )
        for job in jobs
    ]
