"""Process handles that stay valid when a pid is reused, and process trees from /proc.

Standard library only: the local stack, the agent and its job supervisors import this module.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

KILL_WAIT_SECONDS = 10.0  # a killed process holds its ports until the kernel schedules it again
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class ProcessHandle:
    """One process, distinguished from later ones with the same pid by its start time."""

    pid: int
    start_ticks: int  # field 22 of /proc/<pid>/stat, clock ticks since boot
    boot_id: str

    def is_alive(self) -> bool:
        """Whether this process still runs. A zombie does not count."""
        return find_process(self.pid) == self

    def signal(self, number: int) -> None:
        """Send a signal to the process if it is still the same one."""
        if self.is_alive():
            send_signal(self.pid, number)

    def signal_group(self, number: int) -> None:
        """Send a signal to the process group that this process leads."""
        if self.is_alive():
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                pass


def find_process(pid: int) -> ProcessHandle | None:
    """Return a handle of the live process, or None if it does not exist or is a zombie."""
    fields = stat_fields(pid)
    return None if fields is None else ProcessHandle(pid, start_ticks=int(fields[19]), boot_id=boot_id())


def send_signal(pid: int, number: int) -> None:
    """Send a signal; a process that has exited is ignored."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


@cache
def boot_id() -> str:
    """Changes with each boot of the machine; "" in containers that hide it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def list_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children(pid: int) -> list[int]:
    """Pids of the live children of a process."""
    return _children_by_parent().get(pid, [])


def descendants(pid: int) -> list[int]:
    """Pids of the live descendants of a process, parents before children."""
    by_parent = _children_by_parent()
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = by_parent.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def become_subreaper() -> None:
    """Make orphaned descendants children of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(number)}")


def wait_exited(handles: Iterable[ProcessHandle], *, timeout_seconds: float) -> list[ProcessHandle]:
    """Wait until the processes exit; return those still running at the timeout."""
    deadline = time.monotonic() + timeout_seconds
    left = [handle for handle in handles if handle.is_alive()]
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = [handle for handle in left if handle.is_alive()]
    return left


def terminate_group(handle: ProcessHandle, *, grace_seconds: float, first: int = signal.SIGTERM) -> None:
    """Signal a process group, then kill what remains of it after the grace period.

    Does nothing if the leader has exited: its pid may have been reused.
    """
    if not handle.is_alive():
        return
    group = handle.pid
    handle.signal_group(first)
    wait_exited([handle], timeout_seconds=grace_seconds)
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
    wait_exited([handle], timeout_seconds=KILL_WAIT_SECONDS)


def _children_by_parent() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for pid in list_pids():
        if (fields := stat_fields(pid)) is not None:
            found.setdefault(int(fields[1]), []).append(pid)
    return found


def stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat after the command name (state, parent, ...); None for zombies."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name is in parentheses and may itself contain spaces and parentheses.
            fields = file.read().rpartition(b")")[2].decode().split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in ("Z", "X") else fields
