"""Supervise the worker's engine: start, watch, and restart it a limited number of times."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from typing import Protocol

from gpu_agents.rollout.engines.client import EngineClient, ModelLimits
from gpu_agents.rollout.engines.errors import EngineError, EngineUnavailable
from gpu_agents.rollout.engines.launch import EngineProcess, LaunchPlan
from gpu_agents.rollout.worker.engine_handle import EngineHandle

log = logging.getLogger(__name__)

RESTARTS = 3
RESTART_WINDOW_SECONDS = 600.0
FAILED_BOOTS = 3  # in a row, however long each takes
WATCH_SECONDS = 5.0
MAX_FAILED_PROBES = 4
PORT_SECONDS = 30.0


class EngineCrashLoop(Exception):
    """The engine crashed more often than restarts are allowed. The message has its last error."""


class ServingTask(Protocol):
    """What runs while the engine serves, until the run ends."""

    async def keep_current(self, client: EngineClient) -> None: ...


class LifecycleObserver(Protocol):
    """Receives boots and restarts."""

    def boot(self, done: bool) -> None: ...

    def note(self, kind: str, message: str) -> None: ...


class Restarts:
    """Counts crashes in a sliding window, and consecutive failed boots."""

    def __init__(self, *, allowed: int = RESTARTS, window_seconds: float = RESTART_WINDOW_SECONDS) -> None:
        self._allowed = allowed
        self._window_seconds = window_seconds
        self._at: deque[float] = deque()
        self.failed_boots = 0

    def allow(self, *, now: float, booted: bool = True) -> bool:
        """Return whether the engine may start again. `booted`: it served before this crash."""
        self.failed_boots = 0 if booted else self.failed_boots + 1
        if self.failed_boots >= FAILED_BOOTS:
            return False
        while self._at and now - self._at[0] > self._window_seconds:
            self._at.popleft()
        if len(self._at) >= self._allowed:
            return False
        self._at.append(now)
        return True

    def exhausted_message(self, error: EngineUnavailable) -> str:
        """The message for an engine that may not start again after `error`."""
        if self.failed_boots >= FAILED_BOOTS:
            return f"the engine failed to boot {self.failed_boots} times in a row: {error}"
        return f"the engine crashed {self._allowed + 1} times in {self._window_seconds:g} s: {error}"


class EngineSupervisor:
    def __init__(
        self,
        plan: LaunchPlan,
        limits: ModelLimits,
        *,
        engine: EngineHandle,
        loader: ServingTask,
        telemetry: LifecycleObserver,
    ) -> None:
        self._plan = plan
        self._limits = limits
        self._engine = engine
        self._loader = loader
        self._telemetry = telemetry
        self._restarts = Restarts()
        self._serving = False  # whether the current incarnation has served

    async def run(self) -> None:
        """Run until the run ends. Raises EngineCrashLoop. On cancellation, stop the engine first."""
        while True:
            self._serving = False
            try:
                await self._run_incarnation()
                return
            except EngineUnavailable as error:
                if not self._restarts.allow(now=time.monotonic(), booted=self._serving):
                    raise EngineCrashLoop(self._restarts.exhausted_message(error)) from error
                self._engine.counters.restarts += 1
                log.warning("restarting the engine: %s", error)
                kind = "engine_restarted" if self._serving else "engine_boot_failed"
                self._telemetry.note(kind, str(error))

    async def _run_incarnation(self) -> None:
        await _wait_for_port(self._plan.port)
        client = EngineClient(self._plan.port, self._plan.api_key, self._limits)
        process = await EngineProcess.start(self._plan)
        tasks: set[asyncio.Task[None]] = set()
        try:
            self._telemetry.boot(done=False)
            await process.wait_until_serving(client)
            self._serving = True
            self._telemetry.boot(done=True)
            log.info("engine pid %d serves", process.pid)
            tasks = {
                asyncio.create_task(self._loader.keep_current(client)),
                asyncio.create_task(_watch(client, process)),
                asyncio.create_task(_raise_at_exit(process)),
            }
            done, _pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._engine.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await process.stop()
            await client.close()


async def _raise_at_exit(process: EngineProcess) -> None:
    code = await process.wait()
    raise EngineUnavailable(
        f"the engine's process {process.pid} ended with status {code}{process.last_lines}"
    )


async def _watch(client: EngineClient, process: EngineProcess) -> None:
    """Probe GET /model_info for liveness: /health hangs while the engine is paused."""
    failures = 0
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        try:
            await client.weight_version()
            failures = 0
        except EngineError as error:
            failures += 1
            if failures == MAX_FAILED_PROBES:
                raise EngineUnavailable(
                    f"/model_info failed {MAX_FAILED_PROBES} times in a row: {error}{process.last_lines}"
                ) from error


async def _wait_for_port(port: int) -> None:
    """Wait until the previous incarnation has released the port."""
    deadline = time.monotonic() + PORT_SECONDS
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise EngineUnavailable(
                        f"port {port} of the engine is in use by another process: {error}"
                    ) from error
        await asyncio.sleep(0.2)
