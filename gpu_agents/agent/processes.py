"""What /proc says about processes: who is alive, who descends from whom, who carries a job's mark.

Standard library only: the per-job supervisor imports this module and must stay small.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

MARK = "OOLONG_JOB"  # environment variable that every process of a job inherits; its value is the job id


def start_time(pid: int) -> int | None:
    """Clock ticks since boot at which the process started; None when it is gone or only a zombie.

    Together with the pid (and the boot id) this names one process for ever, where a pid alone is reused.
    """
    fields = _stat(pid)
    if fields is None or fields[0] in ("Z", "X"):
        return None
    return int(fields[19])


def is_alive(pid: int, started: int) -> bool:
    """Whether the process that had this pid and start time still runs."""
    return pid > 0 and start_time(pid) == started


def children(pid: int) -> list[int]:
    """Living children of a process."""
    return [
        other
        for other in _pids()
        if (fields := _stat(other)) is not None and fields[0] not in ("Z", "X") and int(fields[1]) == pid
    ]


def descendants(pid: int) -> list[int]:
    """Living children, grandchildren and so on of a process, parents before children."""
    children: dict[int, list[int]] = {}
    for other in _pids():
        fields = _stat(other)
        if fields is not None and fields[0] not in ("Z", "X"):
            children.setdefault(int(fields[1]), []).append(other)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found.append(child)
            waiting.append(child)
    return found


def marked(job_id: str) -> list[int]:
    """Living processes of this user that carry a job's mark in the environment they were started with."""
    wanted = f"{MARK}={job_id}".encode()
    return [pid for pid in _pids() if start_time(pid) is not None and wanted in _environment(pid)]


def end_marked(job_id: str) -> int:
    """SIGKILL whatever still carries the job's mark, until nothing does; the number of processes killed.

    Needed only where the job's supervisor was itself killed: otherwise the supervisor has ended everything.
    """
    killed: set[int] = set()
    for _ in range(100):  # each round also catches what was forked during the one before
        alive = [pid for pid in marked(job_id) if pid != os.getpid()]
        if not alive:
            break
        for pid in alive:
            send(pid, signal.SIGKILL)
        killed.update(alive)
    return len(killed)


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; False when the process is gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def boot_id() -> str:
    """Changes when the machine reboots, which ends every process that a record may name."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat after the command name: state, parent, group, session, ..."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may itself hold spaces and parentheses.
    return text[text.rindex(b")") + 2 :].decode().split()


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []  # gone, or another user's: not ours
