"""Runs untrusted programs in bubblewrap processes, a fixed number at a time."""

from __future__ import annotations

import importlib.util
import itertools
import marshal
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO

from oolong.sandbox import bubblewrap, seccomp
from oolong.sandbox.isolation import IsolationConfig
from oolong.sandbox.limits import Limits
from oolong.sandbox.program import Program
from oolong.sandbox.result import SandboxResult, Status, TestResult
from oolong.sandbox.run_files import RunFiles
from oolong.sandbox.runtime_files import RuntimeFiles
from oolong.sandbox.supervisor import OnTest, SandboxProcess, should_stop

FIRST_UID = 30_000  # of slot 0; they own nothing


class Sandbox:
    """Runs up to `slots` sandboxes at a time; further calls wait. Thread-safe.

    A call blocks its thread until every process in its sandbox has exited.
    """

    def __init__(
        self,
        runtime_files: RuntimeFiles,
        isolation: IsolationConfig,
        *,
        slots: int,
        first_uid: int = FIRST_UID,
    ) -> None:
        self._runtime_files = runtime_files
        self._first_uid = first_uid
        self._isolation = isolation
        self._filter = seccomp.program()
        self._harness = _compiled_guest()
        self._free: queue.Queue[int] = queue.Queue()
        for slot in range(slots):
            self._free.put(slot)
        self.slots = slots

    @property
    def isolation(self) -> IsolationConfig:
        return self._isolation

    @property
    def runtime_files(self) -> RuntimeFiles:
        return self._runtime_files

    def run(
        self,
        program: Program,
        limits: Limits,
        *,
        stdin: IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
        stop: threading.Event | None = None,
        on_test: OnTest | None = None,
    ) -> SandboxResult:
        """Run each test of the program. `stdin` and `stdout` are open files that replace the captured streams
        of the tests. Setting `stop` ends the run early.

        `on_test` is called in this thread with each test's number and result as soon as the test ends. It returns the
        result to keep, so a caller that reads the output at once does not hold the output of all tests.

        When a test breaks its sandbox, the remaining tests get a new one.
        """
        if not program.tests:
            return SandboxResult()
        waited = time.monotonic()
        slot = self._free.get()
        began = time.monotonic()
        try:
            return self._run_all(
                program, limits, slot, (stdin, stdout), stop, on_test, began=began, waited=began - waited
            )
        finally:
            self._free.put(slot)

    def _run_all(
        self,
        program: Program,
        limits: Limits,
        slot: int,
        files: tuple[IO[bytes] | None, IO[bytes] | None],
        stop: threading.Event | None,
        on_test: OnTest | None,
        *,
        began: float,
        waited: float,
    ) -> SandboxResult:
        deadline = began + limits.total_wall_seconds
        done: list[TestResult] = []
        peak: int | None = None
        error = ""
        sandboxes = 0
        while len(done) < len(program.tests) and not error:
            if sandboxes and (time.monotonic() >= deadline or should_stop(done, limits)):
                break
            left = replace(program, tests=program.tests[len(done) :])
            one = SandboxProcess(
                self,
                left,
                limits,
                slot,
                files,
                stop=stop,
                deadline=deadline,
                on_test=_numbered(on_test, len(done)),
            )
            one.run()
            deadline = one.deadline
            sandboxes += 1
            done += one.tests
            error = one.error
            if one.peak_memory_bytes is not None:
                peak = max(peak or 0, one.peak_memory_bytes)
            if not one.tests and not error:
                break  # the deadline passed before the first record
        missing = len(program.tests) - len(done)
        status = Status.SANDBOX_ERROR if error else Status.NOT_RUN
        done += [TestResult(status=status) for _ in range(missing)]
        return SandboxResult(
            tests=done,
            error=error,
            seconds=time.monotonic() - began,
            wait_seconds=waited,
            peak_memory_bytes=peak,
            sandboxes=sandboxes,
        )

    def start(self, program: Program, limits: Limits, slot: int, files: RunFiles) -> subprocess.Popen[bytes]:
        """Start bubblewrap with the open files of one run."""
        words = bubblewrap.command(
            self._runtime_files,
            files.descriptors,
            scratch_bytes=limits.scratch_bytes,
            packages=program.packages,
            socket=program.socket,
        )
        uid = self._first_uid + slot if self._isolation.own_uid else None
        return subprocess.Popen(
            words,
            env={},  # keeps the service's environment out of reach if /proc were ever mounted
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=files.messages_in,
            pass_fds=files.passed,
            user=uid,
            group=uid,
            extra_groups=[] if uid is not None else None,
            start_new_session=True,
        )

    @property
    def filter(self) -> bytes | None:
        return self._filter if self._isolation.seccomp else None

    @property
    def guest_code(self) -> bytes:
        return self._harness


def _numbered(on_test: OnTest | None, first: int) -> Callable[[TestResult], TestResult]:
    numbers = itertools.count(first)
    return lambda outcome: outcome if on_test is None else on_test(next(numbers), outcome)


def _compiled_guest() -> bytes:
    """`guest.py` as a .pyc for this Python: compiling it in every sandbox costs more than starting the sandbox."""
    source = Path(__file__).with_name("guest.py").read_bytes()
    code = compile(source, "/guest.py", "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)
