"""Runs one bubblewrap process and kills everything it leaves behind."""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, Protocol

from oolong.sandbox import cgroups, resource_usage
from oolong.sandbox.accounting import TimeAccounting
from oolong.sandbox.isolation import IsolationConfig
from oolong.sandbox.limits import MEBIBYTE, Limits
from oolong.sandbox.program import Program
from oolong.sandbox.result import Status, TestResult
from oolong.sandbox.run_files import RunFiles, read_available, readable

START_SECONDS = 20.0
MIN_POLL_SECONDS = 1.0  # minimum poll, so data that arrived during a stall of this process is read
END_SECONDS = 10.0
GRACE_SECONDS = 2.0  # to kill the processes of a test and receive its record
USAGE_POLL_SECONDS = 0.02  # between checks of limits that the kernel does not enforce
ADDRESS_HEADROOM_BYTES = (
    512 * MEBIBYTE
)  # address space per process beyond the memory limit: libraries, arenas

OnTest = Callable[[int, TestResult], TestResult]


class Launcher(Protocol):
    """Starts bubblewrap processes: `sandbox.Sandbox`."""

    @property
    def isolation(self) -> IsolationConfig: ...

    @property
    def filter(self) -> bytes | None: ...

    @property
    def guest_code(self) -> bytes: ...

    def start(
        self, program: Program, limits: Limits, slot: int, files: RunFiles
    ) -> subprocess.Popen[bytes]: ...


class SandboxProcess:
    """One bubblewrap process. After `run`, `tests` has the finished tests and `error` a failure of the sandbox."""

    def __init__(
        self,
        service: Launcher,
        program: Program,
        limits: Limits,
        slot: int,
        files: tuple[IO[bytes] | None, IO[bytes] | None],
        *,
        stop: threading.Event | None,
        deadline: float,
        on_test: Callable[[TestResult], TestResult],
    ) -> None:
        self._launcher = service
        self._program = program
        self._limits = limits
        self._slot = slot
        self._stdin, self._stdout = files
        self._stop = stop
        self.deadline = deadline  # extended by time that other programs took
        self._on_test = on_test
        self._buffer = bytearray()
        self._header: dict[str, Any] | None = None  # of the record whose bytes are still to come
        self._ready = False
        self._ended = False
        self._blame: Status | None = None  # why the supervisor killed it
        self._oom_kills = 0
        self._group: cgroups.Cgroup | None = None
        self._accounting = TimeAccounting(limits)
        self.tests: list[TestResult] = []
        self.error = ""
        self.peak_memory_bytes: int | None = None

    def run(self) -> None:
        try:
            files = RunFiles(
                guest_code=self._launcher.guest_code,
                seccomp_filter=self._launcher.filter,
                job=self._job(),
                stdin=self._stdin,
                stdout=self._stdout,
            )
        except OSError as error:  # too many open files
            self.error = f"{type(error).__name__}: {error}"
            return
        try:
            process = self._launcher.start(self._program, self._limits, self._slot, files)
            try:
                files.close_child_ends()
                self._run_started(process, files)
            finally:
                killed_by_others = _end(process)
            if not self._ready and not self.error:
                said = read_available(files.messages_out) or f"it ended with {process.returncode}"
                self.error = f"the sandbox did not start: {said}"
            elif killed_by_others and not self._ended and not self.error:
                self.error = "bubblewrap was killed, and not by this service"
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            # A child that dies as it is taken up has said why; the number that is nobody's any more says nothing.
            said = read_available(files.messages_out)
            self.error = self.error or said or f"{type(error).__name__}: {error}"
        finally:
            files.close()
            self._attribute_failure()

    def _run_started(self, process: subprocess.Popen[bytes], files: RunFiles) -> None:
        pid = self._pid_of_child(files)
        if pid is None:
            return
        try:
            child = os.pidfd_open(pid)  # it waits at the block descriptor, so the pid cannot be reused yet
        except ProcessLookupError:  # it has exited
            return
        try:
            factory = self._launcher.isolation.cgroups
            if factory is not None:
                # One more than the limit: process 1 is the guest.
                self._group = factory.create(
                    memory_bytes=self._limits.memory_bytes, processes=self._limits.processes + 1
                )
                self._group.add(pid)
            self._accounting.start(pid, self._group)
            os.write(files.block_in, b"x")
            self._follow(pid, files)
        finally:
            # When process 1 of a PID namespace exits, the kernel kills all others.
            with contextlib.suppress(ProcessLookupError):  # it has exited
                signal.pidfd_send_signal(child, signal.SIGKILL)
            readable(child, END_SECONDS)
            os.close(child)
            _wait_for(process)  # which reaps its child first: killed before that, it would leave a zombie
            if self._group is not None:
                self._oom_seen()
                self.peak_memory_bytes = self._group.peak_memory_bytes()
                self._group.remove()

    def _pid_of_child(self, files: RunFiles) -> int | None:
        text = b""
        deadline = time.monotonic() + START_SECONDS
        while b"\n" not in text:
            if not readable(files.status_out, max(MIN_POLL_SECONDS, deadline - time.monotonic())):
                self.error = f"bubblewrap did not make a sandbox within {START_SECONDS:g} s"
                return None
            data = os.read(files.status_out, 4096)
            if not data:  # bubblewrap has ended, and has said why
                return None
            text += data
        pid: int = json.loads(text.splitlines()[0])["child-pid"]
        return pid

    def _job(self) -> bytes:
        limits = vars(self._limits) | {
            "bound_processes": self._launcher.isolation.kernel_limits_processes,
            "address_bytes": self._limits.memory_bytes + ADDRESS_HEADROOM_BYTES,
        }
        job = {
            "source": self._program.source,
            "common": self._program.common,
            "imports": [*self._program.imports, *(["json"] if "report" in self._program.source else [])],
            "packages": [f"/packages/{number}" for number in range(len(self._program.packages))],
            "files": dict(self._program.files),
            "tests": [
                {
                    "payload": test.payload,
                    "stdin": test.stdin,
                    "output_bytes": min(test.output_bytes or self._limits.output_bytes, self._limits.output_bytes),
                }
                for test in self._program.tests
            ],
            "limits": limits,
        }  # fmt: skip
        return marshal.dumps(job)

    # --- while it runs --------------------------------------------------------------------------------------------

    def _follow(self, pid: int, files: RunFiles) -> None:
        """Read records until the end. Stop when a limit is exceeded that the guest cannot enforce."""
        poll = select.poll()
        poll.register(files.results_out, select.POLLIN)
        self._accounting.start_test()
        scratch: int | None = None
        poll_at = 0.0
        try:
            while not self._ended:
                now = time.monotonic()
                left = min(self.deadline, self._hard_deadline()) - now
                if left <= 0:
                    self._handle_timeout()
                    return
                if self._stop is not None and self._stop.is_set():
                    self._blame = Status.NOT_RUN
                    return
                until_poll = max(0.0, poll_at - now) if self._ready else MIN_POLL_SECONDS
                if poll.poll(min(left, until_poll, self._max_wait()) * 1000):
                    data = os.read(files.results_out, 262144)
                    if not data:
                        return
                    self._buffer += data
                    self._read_records(files)
                if self._ready and time.monotonic() >= poll_at:
                    if scratch is None and self._polls_usage:
                        scratch = _open_scratch(pid)
                    self._blame = self._exceeded_limit(pid, scratch)
                    if self._blame is not None:
                        return
                    poll_at = time.monotonic() + self._poll_interval()
        finally:
            if scratch is not None:
                os.close(scratch)

    @property
    def _polls_usage(self) -> bool:
        """Whether the supervisor must poll usage because the kernel limits neither memory nor processes."""
        isolation = self._launcher.isolation
        return isolation.cgroups is None or not isolation.kernel_limits_processes

    def _poll_interval(self) -> float:
        return USAGE_POLL_SECONDS if self._polls_usage else self._accounting.sample_interval()

    def _max_wait(self) -> float:
        return 0.2 if self._stop is not None else 60.0

    def _hard_deadline(self) -> float:
        """When the guest should have ended the test."""
        more = GRACE_SECONDS + START_SECONDS * (not self._ready)
        return self._accounting.test_deadline + more

    def _handle_timeout(self) -> None:
        """The test or the sandbox ran out of time: its own fault unless other programs took the cores."""
        self._accounting.sample(at_once=True)
        if self._accounting.was_starved(total=time.monotonic() >= self.deadline):
            self.error = self._accounting.starved_message()
        self._blame = Status.CPU_LIMIT if self._accounting.cpu_exceeded() else Status.WALL_LIMIT

    def _exceeded_limit(self, pid: int, scratch: int | None) -> Status | None:
        self._accounting.sample()
        if self._oom_seen():
            return Status.MEMORY_LIMIT
        if self._accounting.cpu_exceeded():
            return Status.CPU_LIMIT
        if not self._polls_usage:
            return None
        usage = resource_usage.measure_usage(pid)
        kept = (
            resource_usage.measure_scratch(scratch)
            if scratch is not None
            else resource_usage.ScratchUsage(bytes=0, files=0)
        )
        limit = self._limits.memory_bytes
        if (
            self._group is None
            and usage.memory_bytes + kept.bytes > limit
            and resource_usage.proportional_memory_bytes(pid) + kept.bytes > limit
        ):
            return Status.MEMORY_LIMIT
        if kept.files > self._limits.scratch_files:
            return Status.OUTPUT_LIMIT
        if usage.processes > self._limits.processes + 1:
            return Status.PROCESS_LIMIT
        return None

    def _read_records(self, files: RunFiles) -> None:
        while True:
            if self._header is None:
                end = self._buffer.find(b"\n")
                if end < 0:
                    return
                self._header = json.loads(self._buffer[:end])
                del self._buffer[: end + 1]
            record = self._header
            assert record is not None
            sizes = [int(record.get(name, 0)) for name in ("stdout", "stderr", "value")]
            if len(self._buffer) < sum(sizes):
                return
            data = bytes(self._buffer[: sum(sizes)])
            del self._buffer[: sum(sizes)]
            self._header = None
            if "ready" in record:
                self._ready = True
                self._accounting.start_test()
            elif "late" in record:
                self._reply_to_time_request(files, int(record["late"]))
            elif "end" in record:
                self._ended = True
            elif "error" in record:
                self.error = str(record["error"])
                self._ended = True
            elif not self.error:
                self._record_test(record, data, sizes)

    def _reply_to_time_request(self, files: RunFiles, question: int) -> None:
        """Reply to the guest, which asks whether a test that ran out of time may continue."""
        self._accounting.sample(at_once=True)
        more = self._accounting.grant_extension()
        if more:
            self.deadline += more
        elif self._accounting.was_starved(total=False):
            self.error = self._accounting.starved_message()
        os.write(files.control_in, f"{question} {more:.3f}\n".encode())

    def _record_test(self, record: dict[str, Any], data: bytes, sizes: Sequence[int]) -> None:
        stdout, stderr, value = sizes
        status = Status(record["status"])
        self._accounting.read_cpu()
        if self._oom_seen():
            status = Status.MEMORY_LIMIT
        elif self._accounting.cpu_exceeded(
            record["cpu_seconds"]
        ):  # many processes, each within its own limit
            status = Status.CPU_LIMIT
        self._accounting.start_test()
        outcome = TestResult(
            status=status,
            exit_code=record["exit"],
            stdout=data[:stdout],
            stderr=data[stdout : stdout + stderr],
            value=data[stdout + stderr :] if value else None,
            seconds=record["seconds"],
            cpu_seconds=record["cpu_seconds"],
        )
        self.tests.append(self._on_test(outcome))

    def _oom_seen(self) -> bool:
        """Whether the OOM killer has acted since the last call."""
        if self._group is None:
            return False
        kills = self._group.oom_kills()
        new = kills > self._oom_kills
        self._oom_kills = kills
        if new and not self._ended:
            self._blame = Status.MEMORY_LIMIT
        return new

    def _attribute_failure(self) -> None:
        """Attribute the failure to the current test: a sandbox that was ready was broken by its program."""
        if self.error or not self._ready or self._ended or len(self.tests) == len(self._program.tests):
            return
        if should_stop(self.tests, self._limits):
            return
        blame = self._blame or Status.KILLED
        if blame is not Status.NOT_RUN:
            self.tests.append(TestResult(status=blame, seconds=self._accounting.test_seconds))


def should_stop(done: Sequence[TestResult], limits: Limits) -> bool:
    return limits.stop_at_first_failure and any(test.status != Status.OK for test in done)


def _open_scratch(pid: int) -> int | None:
    try:
        return os.open(f"/proc/{pid}/root/tmp", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # it has ended, or this service may not look
        return None


def _end(process: subprocess.Popen[bytes]) -> bool:
    """Kill bubblewrap, and with it the child that it made and has not set free yet. Whether others had killed it.

    That one waits for a word of bubblewrap's, and would wait for ever: it dies with bubblewrap only later. It belongs
    to bubblewrap's process group until it may go on at the block descriptor, which happens when `SandboxProcess` holds
    it. The group's number is nobody else's before bubblewrap is reaped, so the kill comes first, and also for a
    bubblewrap that somebody else has killed.
    """
    before = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=END_SECONDS)
    return before is not None and before.si_code in (os.CLD_KILLED, os.CLD_DUMPED)


def _wait_for(process: subprocess.Popen[bytes]) -> None:
    """Wait for the process to exit without reaping it."""
    watched = os.pidfd_open(process.pid)
    try:
        readable(watched, END_SECONDS)
    finally:
        os.close(watched)
