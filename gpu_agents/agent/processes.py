"""Find the processes of a job by the mark in their environment.

Standard library only: the per-job supervisor imports this module.
"""

from __future__ import annotations

import os
import signal

from oolong.system.process_handle import find_process, list_pids, send_signal

MARK = "OOLONG_JOB"  # environment variable that every process of a job inherits; its value is the job id


def marked(job_id: str) -> list[int]:
    """Pids of this user's live processes that were started with a job's mark."""
    expected = f"{MARK}={job_id}".encode()
    return [pid for pid in list_pids() if find_process(pid) is not None and expected in environment_of(pid)]


def end_marked(job_id: str) -> int:
    """SIGKILL all processes with the job's mark; return how many were killed.

    Needed only if the job's supervisor was killed; otherwise the supervisor has ended them.
    """
    killed: set[int] = set()
    for _ in range(100):  # each round also catches processes forked during the one before
        alive = [pid for pid in marked(job_id) if pid != os.getpid()]
        if not alive:
            break
        for pid in alive:
            send_signal(pid, signal.SIGKILL)
        killed.update(alive)
    return len(killed)


def environment_of(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []  # it has exited, or belongs to another user
