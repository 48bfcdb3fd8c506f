"""The node's sandboxes: probed once, one per core at a time, counted."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from gpu_agents.rewards.reward import SandboxFailed
from oolong.sandbox import (
    Capabilities,
    Limits,
    OnTest,
    ProbeResult,
    Program,
    SandboxResult,
    Status,
    probe_sandbox,
)

log = logging.getLogger(__name__)

TIMEOUTS = frozenset({Status.CPU_LIMIT, Status.WALL_LIMIT})


class Sandboxes:
    """Call `start` once. `run` waits for the probe and for a free slot."""

    def __init__(self, *, slots: int | None = None) -> None:
        self._slots = slots or len(os.sched_getaffinity(0))
        # One thread per sandbox: a sandbox must stay in the thread that started it.
        self._threads = ThreadPoolExecutor(max_workers=self._slots, thread_name_prefix="sandbox")
        self._probe_result: asyncio.Future[ProbeResult] | None = None
        self.runs = 0
        self.tests: Counter[str] = Counter()  # by status
        self.failed = 0  # sandboxes that failed themselves

    @classmethod
    def of(cls, probe_result: ProbeResult, *, slots: int) -> Sandboxes:
        """Create it with a known probe result, on the event loop."""
        made = cls(slots=slots)
        made._probe_result = asyncio.get_running_loop().create_future()
        made._probe_result.set_result(probe_result)
        return made

    @property
    def slots(self) -> int:
        return self._slots

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._probe_result = loop.run_in_executor(self._threads, lambda: probe_sandbox(slots=self._slots))

    async def capabilities(self) -> Capabilities:
        assert self._probe_result is not None, "not started"
        return (await asyncio.shield(self._probe_result)).capabilities

    async def run(self, program: Program, limits: Limits, *, on_test: OnTest | None = None) -> SandboxResult:
        """Raises SandboxFailed if the sandbox itself failed, SandboxUnsupported if the machine has none.

        `on_test` is called in a thread, as by `Sandbox.run`.
        """
        assert self._probe_result is not None, "not started"
        sandbox = (await asyncio.shield(self._probe_result)).require()
        loop = asyncio.get_running_loop()
        outcome = await loop.run_in_executor(
            self._threads, lambda: sandbox.run(program, limits, on_test=on_test)
        )
        self.runs += outcome.sandboxes
        self.tests.update(str(test.status) for test in outcome.tests)
        if outcome.error:
            self.failed += 1
            raise SandboxFailed(outcome.error)
        return outcome

    @property
    def timeouts(self) -> int:
        return sum(self.tests[status] for status in TIMEOUTS)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown, True, cancel_futures=True)
