"""Process handles that stay valid when a pid is reused, for example after a reboot."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_stack.files import read_json, write_json

KILL_WAIT_SECONDS = 10.0  # a killed process holds its ports until the kernel schedules it again


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
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def signal_group(self, number: int) -> None:
        """Send a signal to the process group that this process leads."""
        if self.is_alive():
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                pass


def find_process(pid: int) -> ProcessHandle | None:
    """Return a handle of the live process, or None if it does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, start_ticks = fields[0], int(fields[19])
    if state in ("Z", "X"):
        return None
    return ProcessHandle(pid=pid, start_ticks=start_ticks, boot_id=_boot_id())


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # hidden in some containers; the start time still distinguishes processes
        return ""


def write_pid_file(path: Path, handle: ProcessHandle, **more: Any) -> None:
    record = {"pid": handle.pid, "start_ticks": handle.start_ticks, "boot_id": handle.boot_id, **more}
    write_json(path, record)


def read_pid_file(path: Path) -> ProcessHandle | None:
    """Return the process of a pid file if it is alive."""
    record = read_json(path)
    try:
        handle = ProcessHandle(
            pid=int(record["pid"]), start_ticks=int(record["start_ticks"]), boot_id=str(record["boot_id"])
        )
    except (KeyError, ValueError):
        return None
    return handle if handle.is_alive() else None


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
