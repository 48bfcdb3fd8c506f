"""The sandbox: runs a program in a bubblewrap of its own, watches it, and leaves nothing alive behind."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import marshal
import os
import queue
import select
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from oolong.sandbox import bubblewrap, cgroups, seccomp, watch
from oolong.sandbox.limits import MEBIBYTE, Limits
from oolong.sandbox.outcome import Outcome, Status, TestOutcome
from oolong.sandbox.parts import Parts
from oolong.sandbox.program import Program

FIRST_UID = 30_000  # of slot 0; they own nothing
START_SECONDS = 20.0
LOOK_SECONDS = 1.0  # at least, for what may have come while this process stood still
END_SECONDS = 10.0
GRACE_SECONDS = 2.0  # for the processes of a test to be killed and its record to arrive
WATCH_SECONDS = 0.02
ADDRESS_HEADROOM_BYTES = 512 * MEBIBYTE  # of one process, beyond its share of memory: libraries, arenas
MESSAGE_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Means:
    """How this service bounds a sandbox; the canary decides it once."""

    seccomp: bool = True
    groups: cgroups.Groups | None = None
    kernel_bounds_processes: bool = True
    own_uid: bool = False


class Sandbox:
    """`slots` sandboxes at a time; a call beyond them waits. Safe to call from several threads.

    A call blocks its thread until every process of its sandbox is dead.
    """

    def __init__(self, parts: Parts, means: Means, *, slots: int, first_uid: int = FIRST_UID) -> None:
        self._parts = parts
        self._first_uid = first_uid
        self._means = means
        self._filter = seccomp.program()
        self._harness = _compiled_harness()
        self._free: queue.Queue[int] = queue.Queue()
        for slot in range(slots):
            self._free.put(slot)
        self.slots = slots

    @property
    def means(self) -> Means:
        return self._means

    @property
    def parts(self) -> Parts:
        return self._parts

    def run(
        self,
        program: Program,
        limits: Limits,
        *,
        stdin: IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
        stop: threading.Event | None = None,
    ) -> Outcome:
        """Run each test of the program. `stdin` and `stdout` are open files that the tests get as they are
        instead of captured ones (a file to read, a file or pipe to fill). `stop` ends it early.

        When tests break their sandbox, the ones after them get another: what one test does is not the next
        one's fault.
        """
        if not program.tests:
            return Outcome()
        waited = time.monotonic()
        slot = self._free.get()
        began = time.monotonic()
        try:
            return self._run_all(
                program, limits, slot, (stdin, stdout), stop, began=began, waited=began - waited
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
        *,
        began: float,
        waited: float,
    ) -> Outcome:
        deadline = began + limits.total_wall_seconds
        done: list[TestOutcome] = []
        peak: int | None = None
        error = ""
        sandboxes = 0
        while len(done) < len(program.tests) and not error:
            if sandboxes and (time.monotonic() >= deadline or _is_over(done, limits)):
                break
            left = replace(program, tests=program.tests[len(done) :])
            one = _One(self, left, limits, slot, files, stop=stop, deadline=deadline)
            one.run()
            sandboxes += 1
            done += one.tests
            error = one.error
            if one.peak_memory_bytes is not None:
                peak = max(peak or 0, one.peak_memory_bytes)
            if not one.tests and not error:
                break  # its time was over before the first record
        missing = len(program.tests) - len(done)
        status = Status.SANDBOX_ERROR if error else Status.NOT_RUN
        done += [TestOutcome(status=status) for _ in range(missing)]
        return Outcome(
            tests=done,
            error=error,
            seconds=time.monotonic() - began,
            wait_seconds=waited,
            peak_memory_bytes=peak,
            sandboxes=sandboxes,
        )

    def start(self, program: Program, limits: Limits, slot: int, files: _Files) -> subprocess.Popen[bytes]:
        """Bubblewrap with the given files; used by one run."""
        words = bubblewrap.command(
            self._parts,
            files.descriptors,
            scratch_bytes=limits.scratch_bytes,
            packages=program.packages,
            socket=program.socket,
        )
        uid = self._first_uid + slot if self._means.own_uid else None
        return subprocess.Popen(
            words,
            env={},  # the environment of bubblewrap itself could be read inside, were there a /proc
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
        return self._filter if self._means.seccomp else None

    @property
    def harness(self) -> bytes:
        return self._harness


def _is_over(done: Sequence[TestOutcome], limits: Limits) -> bool:
    return limits.stop_at_first_failure and any(test.status != Status.OK for test in done)


def _compiled_harness() -> bytes:
    """`inside.py` as a .pyc for this Python: compiling it in every sandbox would cost more than starting one."""
    source = Path(__file__).with_name("inside.py").read_bytes()
    code = compile(source, "/inside.py", "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


class _Files:
    """The descriptors of one run: contents in memory files, two pipes each way."""

    def __init__(self, box: Sandbox, job: bytes, stdin: IO[bytes] | None, stdout: IO[bytes] | None) -> None:
        self._open: list[int] = []
        try:
            self._make(box, job, stdin, stdout)
        except OSError:
            self.close()
            raise

    def _make(self, box: Sandbox, job: bytes, stdin: IO[bytes] | None, stdout: IO[bytes] | None) -> None:
        self.status_out, status_in = self._pipe()
        block_out, self.block_in = self._pipe()
        self.results_out, results_in = self._pipe()
        self.messages_out, self.messages_in = self._pipe()
        seccomp_filter = self._memory(box.filter) if box.filter is not None else None
        self.descriptors = bubblewrap.Descriptors(
            harness=self._memory(box.harness),
            seccomp=seccomp_filter,
            status=status_in,
            block=block_out,
            job=self._memory(job),
            results=results_in,
            stdin=stdin.fileno() if stdin else -1,
            stdout=stdout.fileno() if stdout else -1,
        )
        self.passed = [fd for fd in vars(self.descriptors).values() if fd is not None and fd >= 0]

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._open += ends
        return ends

    def _memory(self, content: bytes) -> int:
        fd = os.memfd_create("sandbox", os.MFD_CLOEXEC)
        self._open.append(fd)
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def close_theirs(self) -> None:
        """After the start: only then does the end of the other side show."""
        ours = {self.status_out, self.block_in, self.results_out, self.messages_out}
        for fd in self._open:
            if fd not in ours:
                os.close(fd)
        self._open = sorted(ours)

    def close(self) -> None:
        for fd in self._open:
            os.close(fd)
        self._open = []


class _One:
    """One bubblewrap from start to end."""

    def __init__(
        self,
        box: Sandbox,
        program: Program,
        limits: Limits,
        slot: int,
        files: tuple[IO[bytes] | None, IO[bytes] | None],
        *,
        stop: threading.Event | None,
        deadline: float,
    ) -> None:
        self._box = box
        self._program = program
        self._limits = limits
        self._slot = slot
        self._stdin, self._stdout = files
        self._stop = stop
        self._deadline = deadline
        self._buffer = bytearray()
        self._ready = False
        self._ended = False
        self._blame: Status | None = None  # why the supervisor killed it
        self._test_began = 0.0
        self._oom_kills = 0
        self._group: cgroups.Group | None = None
        self.tests: list[TestOutcome] = []
        self.error = ""
        self.peak_memory_bytes: int | None = None

    def run(self) -> None:
        try:
            files = _Files(self._box, self._job(), self._stdin, self._stdout)
        except OSError as error:  # too many open files
            self.error = f"{type(error).__name__}: {error}"
            return
        try:
            process = self._box.start(self._program, self._limits, self._slot, files)
            try:
                files.close_theirs()
                self._run_started(process, files)
            finally:
                killed_by_others = _end(process)
            if not self._ready and not self.error:
                self.error = f"the sandbox did not start: {_said(files, process)}"
            elif killed_by_others and not self._ended:
                self.error = "bubblewrap was killed, and not by this service"
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            # A child that dies as it is taken up has said why; the number that is nobody's any more says nothing.
            said = _read_some(files.messages_out)
            self.error = self.error or said or f"{type(error).__name__}: {error}"
        finally:
            files.close()
            self._settle()

    def _run_started(self, process: subprocess.Popen[bytes], files: _Files) -> None:
        pid = self._pid_of_child(files)
        if pid is None:
            return
        try:
            child = os.pidfd_open(pid)  # it waits at the block descriptor: the number cannot be another's yet
        except ProcessLookupError:  # it did not get that far
            return
        try:
            groups = self._box.means.groups
            if groups is not None:
                # One process of its own beside those asked for: the first one inside.
                self._group = groups.new(
                    memory_bytes=self._limits.memory_bytes, processes=self._limits.processes + 1
                )
                self._group.add(pid)
            os.write(files.block_in, b"x")
            self._follow(pid, child, files)
        finally:
            # Process 1 of a pid namespace: when it is gone, every other one is.
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                signal.pidfd_send_signal(child, signal.SIGKILL)
            _readable(child, END_SECONDS)
            os.close(child)
            _wait_for(process)  # which reaps its child first: killed before that, it would leave a zombie
            if self._group is not None:
                self._oom_seen()
                self.peak_memory_bytes = self._group.peak_memory_bytes()
                self._group.remove()

    def _pid_of_child(self, files: _Files) -> int | None:
        text = b""
        deadline = time.monotonic() + START_SECONDS
        while b"\n" not in text:
            if not _readable(files.status_out, max(LOOK_SECONDS, deadline - time.monotonic())):
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
            "bound_processes": self._box.means.kernel_bounds_processes,
            "address_bytes": self._limits.memory_bytes + ADDRESS_HEADROOM_BYTES,
        }
        job = {
            "source": self._program.source,
            "common": self._program.common,
            "imports": [*self._program.imports, *(["json"] if "report" in self._program.source else [])],
            "packages": [f"/packages/{number}" for number in range(len(self._program.packages))],
            "files": dict(self._program.files),
            "tests": [{"payload": test.payload, "stdin": test.stdin} for test in self._program.tests],
            "limits": limits,
        }
        return marshal.dumps(job)

    def _follow(self, pid: int, child: int, files: _Files) -> None:
        """Read records until the end; kill when a bound is passed that the inside cannot hold itself."""
        poll = select.poll()
        poll.register(files.results_out, select.POLLIN)
        supervised = self._box.means.groups is None or not self._box.means.kernel_bounds_processes
        tick = WATCH_SECONDS if supervised else 0.2 if self._stop is not None else 60.0
        self._test_began = time.monotonic()
        scratch: int | None = None
        try:
            while not self._ended:
                now = time.monotonic()
                hard = (
                    self._test_began
                    + self._limits.wall_seconds
                    + GRACE_SECONDS
                    + START_SECONDS * (not self._ready)
                )
                left = min(self._deadline, hard) - now
                if left <= 0:
                    self._blame = Status.WALL_LIMIT
                    return
                if self._stop is not None and self._stop.is_set():
                    self._blame = Status.NOT_RUN
                    return
                if poll.poll(min(left, tick) * 1000):
                    data = os.read(files.results_out, 262144)
                    if not data:
                        return
                    self._buffer += data
                    self._take_records()
                if supervised and self._ready:
                    if scratch is None:
                        scratch = _open_scratch(pid)
                    self._blame = self._passed_bound(pid, scratch)
                    if self._blame is not None:
                        return
        finally:
            if scratch is not None:
                os.close(scratch)

    def _passed_bound(self, pid: int, scratch: int | None) -> Status | None:
        usage = watch.usage_of(pid)
        kept = watch.scratch_use(scratch) if scratch is not None else watch.Scratch(bytes=0, files=0)
        limit = self._limits.memory_bytes
        if (
            self._box.means.groups is None
            and usage.memory_bytes + kept.bytes > limit
            and watch.shared_out_memory_bytes(pid) + kept.bytes > limit
        ):
            return Status.MEMORY_LIMIT
        if kept.files > self._limits.scratch_files:
            return Status.OUTPUT_LIMIT
        if usage.processes > self._limits.processes + 1:
            return Status.PROCESS_LIMIT
        return None

    def _take_records(self) -> None:
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if not newline:
                return
            record: dict[str, Any] = json.loads(line)
            if "ready" in record:
                self._ready = True
                self._test_began = time.monotonic()
            elif "end" in record:
                self._ended = True
            elif "error" in record:
                self.error = str(record["error"])
                self._ended = True
            else:
                sizes = [int(record[name]) for name in ("stdout", "stderr", "value")]
                if len(rest) < sum(sizes):
                    return
                self._take_test(record, bytes(rest[: sum(sizes)]), sizes)
                rest = rest[sum(sizes) :]
            self._buffer = bytearray(rest)

    def _take_test(self, record: dict[str, Any], data: bytes, sizes: list[int]) -> None:
        stdout, stderr, value = sizes
        status = Status(record["status"])
        if self._oom_seen():
            status = Status.MEMORY_LIMIT
        self._test_began = time.monotonic()
        self.tests.append(
            TestOutcome(
                status=status,
                exit_code=record["exit"],
                stdout=data[:stdout],
                stderr=data[stdout : stdout + stderr],
                value=data[stdout + stderr :] if value else None,
                seconds=record["seconds"],
                cpu_seconds=record["cpu_seconds"],
            )
        )

    def _oom_seen(self) -> bool:
        """Whether the kernel killed for memory since the last question."""
        if self._group is None:
            return False
        kills = self._group.oom_kills()
        new = kills > self._oom_kills
        self._oom_kills = kills
        if new and not self._ended:
            self._blame = Status.MEMORY_LIMIT
        return new

    def _settle(self) -> None:
        """A sandbox that was ready and broke did so by its program: the test at hand is blamed."""
        if self.error or not self._ready or self._ended or len(self.tests) == len(self._program.tests):
            return
        if _is_over(self.tests, self._limits):
            return
        blame = self._blame or Status.KILLED
        if blame is not Status.NOT_RUN:
            self.tests.append(TestOutcome(status=blame, seconds=time.monotonic() - self._test_began))


def _open_scratch(pid: int) -> int | None:
    try:
        return os.open(f"/proc/{pid}/root/tmp", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # it has ended, or this service may not look
        return None


def _end(process: subprocess.Popen[bytes]) -> bool:
    """Kill bubblewrap, and with it the child that it made and has not set free yet. Whether others had killed it.

    That one waits for a word of bubblewrap's, and would wait for ever: it dies with bubblewrap only later. It belongs
    to bubblewrap's process group until it may go on at the block descriptor, which happens when `_One` holds it. The
    group's number is nobody else's before bubblewrap is reaped, so the kill comes first, and also for a bubblewrap
    that somebody else has killed.
    """
    before = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=END_SECONDS)
    return before is not None and before.si_code in (os.CLD_KILLED, os.CLD_DUMPED)


def _wait_for(process: subprocess.Popen[bytes]) -> None:
    """Until it has ended, without reaping it."""
    watched = os.pidfd_open(process.pid)
    try:
        _readable(watched, END_SECONDS)
    finally:
        os.close(watched)


def _readable(fd: int, seconds: float) -> bool:
    """Whether there is something to read (of a process: its end) within these seconds. Any number of descriptors
    may be open, so this is no select()."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _said(files: _Files, process: subprocess.Popen[bytes]) -> str:
    """Bubblewrap's own words, once it has ended."""
    return _read_some(files.messages_out) or f"it ended with {process.returncode}"


def _read_some(fd: int) -> str:
    os.set_blocking(fd, False)
    try:
        return os.read(fd, MESSAGE_BYTES).decode(errors="replace").strip()
    except BlockingIOError:
        return ""
