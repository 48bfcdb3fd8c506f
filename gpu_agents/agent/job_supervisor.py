"""The per-job supervisor: `python -m gpu_agents.agent.job_supervisor <order file>`.

One small process per job, which outlives the agent, so that a restarted agent adopts the job. It starts the job in its
own session, writes its output to a file, forwards a graceful stop, reaps every process the job forked (daemons
included), and records how the job ended. It terminates the job if the node had no contact with the control plane for
`orphan_ttl_seconds`, even without an agent.

Uses only the standard library and a few MB of memory, and wakes up a few times a minute.

Secrets arrive on stdin, never in a file, and go into the job's environment; the supervisor redacts them from the job's
output. Core dumps are disabled, because they would contain secrets.

Signals: SIGTERM stops the job's first process; SIGUSR2 kills the whole job.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import sys
import threading
import time
from typing import Any

from gpu_agents.agent.processes import end_marked
from oolong.redaction import NAMES, Redactor
from oolong.system.process_handle import (
    become_subreaper,
    boot_id,
    children,
    descendants,
    find_process,
    send_signal,
)

STOP = signal.SIGTERM
KILL = signal.SIGUSR2
WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGCHLD)

SIGNAL_STATUS = 128  # bubblewrap's exit status is this plus the signal that ended the job
VIEW_SECONDS = 10.0  # for bubblewrap to create the job's view
DRAIN_SECONDS = 10.0  # to read the rest of an ended job's output
ALREADY_SUPERVISED = 3  # exit status: another supervisor holds this job directory


def main(arguments: list[str]) -> int:
    order = _read_json(arguments[0])
    directory = order["supervision"]  # private to this process
    exit_file = os.path.join(directory, "exit.json")
    lock = os.open(os.path.join(directory, "supervisor.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return ALREADY_SUPERVISED
    if os.path.exists(exit_file):
        return 0  # an incarnation runs only once

    end_marked(order["job_id"])  # left by a supervisor that was killed before it wrote its record
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # before secrets are read; children inherit it
    secrets: dict[str, str] = json.load(sys.stdin) if order.get("has_secrets") else {}
    become_subreaper()
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    output = Output(os.path.join(directory, "output.log"), secrets)
    leader = _start(order, secrets, output)
    output.follow()
    first = _first_process(leader, isolated=order["isolated"])
    _write_json(
        order["record"],
        {
            "job_id": order["job_id"],
            "incarnation": order["incarnation"],
            "directory": order["directory"],
            "boot_id": boot_id(),
            "pid": os.getpid(),
            "start_ticks": _start_ticks(os.getpid()),
            "job_pid": first,
            "pgid": leader,
        },
    )
    code, cause = _watch(leader, order)
    if order["isolated"] and code > SIGNAL_STATUS:
        code = SIGNAL_STATUS - code  # bubblewrap reports signals as shells do
    _end_survivors()
    output.finish()
    _remove(order["temporary"])
    _write_json(exit_file, {"code": code, "at": time.time(), "cause": cause})
    return 0


class Output:
    """The job's stdout and stderr: written directly to its log, or through a redacting thread if it has secrets."""

    def __init__(self, path: str, secrets: dict[str, str]) -> None:
        self._log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._redactor = Redactor(secrets)
        self._source, self.descriptor = os.pipe2(os.O_CLOEXEC) if secrets else (-1, self._log)
        self._thread: threading.Thread | None = None

    def follow(self) -> None:
        """Start redacting. Call it after the job inherited the descriptor."""
        os.close(self.descriptor)
        if self._source >= 0:
            self._thread = threading.Thread(target=self._redact, daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait until the log is complete. Call it after all processes of the job ended."""
        if self._thread is not None:
            self._thread.join(DRAIN_SECONDS)

    def _redact(self) -> None:
        while chunk := os.read(self._source, 64 * 1024):
            self._write(self._redactor.feed(chunk))
        self._write(self._redactor.end())

    def _write(self, data: bytes) -> None:
        """Write to the log. If the disk is full, the output is lost and the job continues."""
        try:
            while data:
                data = data[os.write(self._log, data) :]
        except OSError as error:
            print(f"{len(data)} bytes of output are lost: {error}", file=sys.stderr, flush=True)


def _start(order: dict[str, Any], secrets: dict[str, str], output: Output) -> int:
    """Fork the job's first process, a session and group leader. Returns its pid."""
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    command = order["command"]
    environment: dict[str, str] = order["environment"]
    given = {name: value for name, value in secrets.items() if name not in environment}
    if given:
        environment = {**environment, **given, NAMES: ",".join(given)}
    pid = os.fork()
    if pid:
        os.close(nothing)
        return pid
    try:
        os.setsid()
        os.dup2(nothing, 0)
        os.dup2(output.descriptor, 1)
        os.dup2(output.descriptor, 2)
        os.chdir(order["directory"])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        if order["isolated"]:
            # Slurm signals every process, and the job dies with its bubblewrap. `isolation.enter` restores the default.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.execve(command[0], command, environment)
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error}\n".encode())
    finally:
        os._exit(127)  # reached only if exec failed


def _watch(leader: int, order: dict[str, Any]) -> tuple[int, str]:
    """Wait for the first process to exit; return its exit code (negative: signal) and the cause."""
    contact = Contact(order["contact"])
    orphan_ttl = float(order["orphan_ttl_seconds"])
    tick = max(0.05, min(5.0, orphan_ttl / 8))
    kill_at: float | None = None
    cause = ""
    while True:
        received = signal.sigtimedwait(WATCHED, tick)
        number = received.si_signo if received is not None else 0
        code = _reap(leader)
        if code is not None:
            return code, cause
        if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) and not cause:
            cause = "stopped"
            # Once, because torchrun stops waiting for its ranks when it is signaled again and again. And only the
            # first process: a worker still needs its engine while it shuts down.
            send_signal(_first_process(leader, isolated=order["isolated"]), signal.SIGTERM)
        elif number == KILL:
            cause = cause or "killed"
            _kill_all()
        if kill_at is None and contact.age() > orphan_ttl:
            cause = cause or "orphaned"
            kill_at = time.monotonic() + float(order["grace_seconds"])
            send_signal(_first_process(leader, isolated=order["isolated"]), signal.SIGTERM)
            tick = min(tick, 0.5)
        if kill_at is not None and time.monotonic() >= kill_at:
            _kill_all()


def _first_process(leader: int, *, isolated: bool) -> int:
    """The job's first process: the leader, or, under bubblewrap, the oldest child of bubblewrap's process 1.

    Falls back to the leader if bubblewrap has not started the job yet, or has exited.
    """
    deadline = time.monotonic() + VIEW_SECONDS
    while isolated and find_process(leader) is not None and time.monotonic() < deadline:
        inits = children(leader)
        inside = children(inits[0]) if inits else []
        if inside:
            return min(inside, key=lambda pid: (_start_ticks(pid), pid))
        time.sleep(0.002)
    return leader


class Contact:
    """Time since the agent last reached the control plane, measured by a file's mtime.

    Uses the boot-time clock, which ignores changes of the wall clock and counts suspension.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = self._mtime()
        self._since = time.clock_gettime(time.CLOCK_BOOTTIME)

    def age(self) -> float:
        mtime = self._mtime()
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        if mtime != self._seen:
            self._seen, self._since = mtime, now
        return now - self._since

    def _mtime(self) -> int:
        try:
            return os.stat(self._path).st_mtime_ns
        except FileNotFoundError:
            return 0


def _reap(leader: int) -> int | None:
    """Reap exited children; return the leader's exit code if it is among them."""
    code: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == leader:
            code = os.waitstatus_to_exitcode(status)


def _kill_all() -> None:
    for pid in descendants(os.getpid()):
        send_signal(pid, signal.SIGKILL)


def _end_survivors() -> None:
    """Kill the job's remaining processes until this process, their subreaper, has no children."""
    while True:
        _kill_all()
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            signal.sigtimedwait((signal.SIGCHLD,), 0.05)


def _remove(folder: str) -> None:
    """Remove the job's /tmp, which may be nested deeper than Python's recursion limit."""
    if folder:
        os.waitpid(os.posix_spawn("/bin/rm", ["rm", "-rf", "--", folder], {}), 0)


def _start_ticks(pid: int) -> int:
    """The start time of a process; 0 if it has exited."""
    handle = find_process(pid)
    return 0 if handle is None else handle.start_ticks


def _read_json(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        value: dict[str, Any] = json.load(file)
    return value


def _write_json(path: str, value: dict[str, Any]) -> None:
    temporary = f"{path}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(json.dumps(value).encode())
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    parent = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
