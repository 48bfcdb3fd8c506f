"""The per-job supervisor: `python -m gpu_agents.agent.job_supervisor <order file>`.

One small process per job, independent of the agent: it outlives the agent on purpose, so that a restarted
agent finds the job where it was. It starts the job in a session of its own, sends its output to a file,
passes a graceful stop on, leaves no survivor behind (it is the reaper of everything the job ever forked,
daemons included), writes down how the job ended, and ends the job by itself when the node has heard nothing
from the control plane for `orphan_ttl_seconds` (SEMANTICS section 7), which must work with the agent dead.

Standard library only (and what is made of it); a few MB of memory; wakes up a few times a minute.

A job with secrets: their values come by stdin, never by a file, and go into the job's environment; its output goes
through this process, which takes them out before anything is written. No process of a job leaves a core dump, for it
would hold them.

Signals: SIGTERM asks the job's first process to stop; SIGUSR2 kills all of the job at once.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import sys
import threading
import time
from typing import Any

from gpu_agents.agent.processes import boot_id, children, descendants, end_marked, send, start_time
from oolong.redaction import NAMES, Redactor

PR_SET_CHILD_SUBREAPER = 36

STOP = signal.SIGTERM
KILL = signal.SIGUSR2
WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGCHLD)

SIGNAL_STATUS = 128  # bubblewrap's exit status is this and the signal that ended the job
VIEW_SECONDS = 10.0  # for bubblewrap to make the job's view
LAST_WORDS_SECONDS = 10.0  # for what an ended job still has in its pipe
ALREADY_SUPERVISED = 3  # exit status: another supervisor holds this job directory


def main(arguments: list[str]) -> int:
    order = _read_json(arguments[0])
    directory = order["supervision"]  # this process's own files; the job cannot reach them
    exit_file = os.path.join(directory, "exit.json")
    lock = os.open(os.path.join(directory, "supervisor.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return ALREADY_SUPERVISED
    if os.path.exists(exit_file):
        return 0  # this incarnation has run; it never runs twice

    end_marked(order["job_id"])  # of a supervisor that was killed before it had written down what it started
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # before a secret is here; what it starts inherits it
    secrets: dict[str, str] = json.load(sys.stdin) if order.get("has_secrets") else {}
    _become_reaper()
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
            "start_time": start_time(os.getpid()),
            "job_pid": first,
            "job_start_time": start_time(first),
            "pgid": leader,
        },
    )
    code, cause = _watch(leader, order)
    if order["isolated"] and code > SIGNAL_STATUS:
        code = SIGNAL_STATUS - code  # bubblewrap passes the end by a signal on as a shell does
    _end_survivors()
    output.finish()
    _remove(order["temporary"])
    _write_json(exit_file, {"code": code, "at": time.time(), "cause": cause})
    return 0


class Output:
    """Where the job's stdout and stderr go: straight into its log, or through this process where they may quote a
    secret. A thread passes them on, so that a job never waits for the supervisor's other work."""

    def __init__(self, path: str, secrets: dict[str, str]) -> None:
        self._log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._redactor = Redactor(secrets)
        self._source, self.descriptor = os.pipe2(os.O_CLOEXEC) if secrets else (-1, self._log)
        self._thread: threading.Thread | None = None

    def follow(self) -> None:
        """Once the job has the descriptor."""
        os.close(self.descriptor)
        if self._source >= 0:
            self._thread = threading.Thread(target=self._pass_on, daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Once no process of the job is left: the log is whole."""
        if self._thread is not None:
            self._thread.join(LAST_WORDS_SECONDS)

    def _pass_on(self) -> None:
        while chunk := os.read(self._source, 64 * 1024):
            self._write(self._redactor.feed(chunk))
        self._write(self._redactor.end())

    def _write(self, data: bytes) -> None:
        """What a full disk does not take is lost, as it is to a job that writes by itself; the job goes on."""
        try:
            while data:
                data = data[os.write(self._log, data) :]
        except OSError as error:
            print(f"{len(data)} bytes of output are lost: {error}", file=sys.stderr, flush=True)


def _start(order: dict[str, Any], secrets: dict[str, str], output: Output) -> int:
    """Fork the job's first process: leader of a session and of a process group; its pid."""
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
        os.execve(command[0], command, environment)
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error}\n".encode())
    finally:
        os._exit(127)  # reached only when the command could not be started


def _watch(leader: int, order: dict[str, Any]) -> tuple[int, str]:
    """Wait for the first process to end; its exit code (negative: signal) and who caused the end."""
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
        if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            cause = cause or "stopped"
            # The first process alone: an engine below a worker must outlive the worker's own farewell.
            send(_first_process(leader, isolated=order["isolated"]), signal.SIGTERM)
        elif number == KILL:
            cause = cause or "killed"
            _kill_all()
        if kill_at is None and contact.age() > orphan_ttl:
            cause = cause or "orphaned"
            kill_at = time.monotonic() + float(order["grace_seconds"])
            send(_first_process(leader, isolated=order["isolated"]), signal.SIGTERM)
            tick = min(tick, 0.5)
        if kill_at is not None and time.monotonic() >= kill_at:
            _kill_all()


def _first_process(leader: int, *, isolated: bool) -> int:
    """The job's own first process: the leader, or, below bubblewrap and its process 1, the oldest child of the latter.

    While bubblewrap is still at work there is none yet, and afterwards none any more: then it is the leader, whose end
    is the end of all. Process 1 ends with the job's first process, so any younger child of it is no first process.
    """
    deadline = time.monotonic() + VIEW_SECONDS
    while isolated and start_time(leader) is not None and time.monotonic() < deadline:
        inits = children(leader)
        inside = children(inits[0]) if inits else []
        if inside:
            return min(inside, key=lambda pid: (start_time(pid) or 0, pid))
        time.sleep(0.002)
    return leader


class Contact:
    """How long ago the agent last reached the control plane, by changes of a file's mtime.

    Ages are measured on the boot-time clock: setting the wall clock moves no deadline, and a suspended
    machine does not stop the count.
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
    """Collect every child that has ended; the leader's exit code when it is among them."""
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
        send(pid, signal.SIGKILL)


def _end_survivors() -> None:
    """Kill what the job left running. Orphans come to this process, so the end is when no child is left."""
    while True:
        _kill_all()
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            signal.sigtimedwait((signal.SIGCHLD,), 0.05)


def _remove(folder: str) -> None:
    """The job's /tmp. It may be nested deeper than a recursion in Python can follow."""
    if folder:
        os.waitpid(os.posix_spawn("/bin/rm", ["rm", "-rf", "--", folder], {}), 0)


def _become_reaper() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(number)}")


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
