"""Terminate what a test suite leaves running: fixture servers, agents and engines in their own sessions.

The process that runs the suites becomes a subreaper: daemons whose parent exits stay its descendants, so that
they are found by descent and never by name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from oolong.system.process_handle import descendants, send_signal

GRACE_SECONDS = 10.0


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
                send_signal(pid, signal.SIGKILL if expired else signal.SIGTERM)
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
