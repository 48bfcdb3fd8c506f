"""What a test lane leaves running: servers of its fixtures, agents, engines, in sessions of their own.

The process that runs the lanes is made the reaper of everything below it. So whatever a lane started, daemons
included, stays a descendant of this process when its own parent dies, and is found by descent, never by a name.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 10.0


def become_subreaper() -> None:
    """From now on, orphaned descendants become children of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(number)}")


def descendants(pid: int) -> list[int]:
    """Living children, grandchildren and so on of a process."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if state not in ("Z", "X"):
                children.setdefault(int(parent), []).append(int(folder.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def terminate_descendants(*, grace: float = GRACE_SECONDS) -> list[str]:
    """End all that is left below this process, after `grace` seconds by force; what it was, in words.

    To be called when every child that somebody waits for has been waited for.
    """
    _reap()
    ended = [f"{pid} {_command(pid)}" for pid in descendants(os.getpid())]
    deadline = time.monotonic() + grace
    asked: set[int] = set()
    while left := descendants(os.getpid()):
        late = time.monotonic() > deadline
        for pid in left:
            if late or pid not in asked:
                asked.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(0.05)
        _reap()
    _reap()
    return ended


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _command(pid: int) -> str:
    try:
        words = (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return b" ".join(words[:6]).decode(errors="replace").strip()
