"""The node's sandbox as the reward service uses it: examined once, as many at a time as cores, counted."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from gpu_agents.rewards.reward import SandboxFailed
from oolong.sandbox import Capabilities, Findings, Limits, Outcome, Program, Status, Take, examine

log = logging.getLogger(__name__)

TIMEOUTS = frozenset({Status.CPU_LIMIT, Status.WALL_LIMIT})


class Sandboxes:
    """Call `start` once. `run` waits for the examination and for a free sandbox."""

    def __init__(self, *, slots: int | None = None) -> None:
        self._slots = slots or len(os.sched_getaffinity(0))
        # A thread per sandbox, of this pool's own: a sandbox lives in the thread that started it.
        self._threads = ThreadPoolExecutor(max_workers=self._slots, thread_name_prefix="sandbox")
        self._findings: asyncio.Future[Findings] | None = None
        self.runs = 0
        self.tests: Counter[str] = Counter()  # by status
        self.failed = 0  # sandboxes that broke by themselves

    @classmethod
    def of(cls, findings: Findings, *, slots: int) -> Sandboxes:
        """With what has been found before. Call it where the event loop runs."""
        made = cls(slots=slots)
        made._findings = asyncio.get_running_loop().create_future()
        made._findings.set_result(findings)
        return made

    @property
    def slots(self) -> int:
        return self._slots

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._findings = loop.run_in_executor(self._threads, lambda: examine(slots=self._slots))

    async def capabilities(self) -> Capabilities:
        assert self._findings is not None, "start it first"
        return (await asyncio.shield(self._findings)).capabilities

    async def run(self, program: Program, limits: Limits, *, take: Take | None = None) -> Outcome:
        """Raise SandboxFailed when the sandbox itself broke, SandboxRefused where this machine has none.

        `take`: as `Sandbox.run` calls it, in a thread.
        """
        assert self._findings is not None, "start it first"
        sandbox = (await asyncio.shield(self._findings)).require()
        loop = asyncio.get_running_loop()
        outcome = await loop.run_in_executor(self._threads, lambda: sandbox.run(program, limits, take=take))
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
