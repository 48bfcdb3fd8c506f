"""Terminate what a test suite leaves running: fixture servers, agents and engines in their own sessions.

The process that runs the suites becomes a subreaper: daemons whose parent exits stay its descendants, so that
they are found by descent and never by name.
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
    """Make orphaned descendants children of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(number)}")


def descendants(pid: int) -> list[int]:
    """Pids of the live descendants of a process."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has exited
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
    """Terminate all descendants, with SIGKILL after `grace` seconds. Return the pid and command of each.

    Reaps children: call it only when no other code waits for a child.
    """
    _reap()
    terminated = [f"{pid} {_command(pid)}" for pid in descendants(os.getpid())]
    deadline = time.monotonic() + grace
    signaled: set[int] = set()
    while left := descendants(os.getpid()):
        expired = time.monotonic() > deadline
        for pid in left:
            if expired or pid not in signaled:
                signaled.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if expired else signal.SIGTERM)
        time.sleep(0.05)
        _reap()
    _reap()
    return terminated


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
