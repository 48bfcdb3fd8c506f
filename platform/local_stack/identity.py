"""Who a process is: a pid alone may belong to somebody else after a restart of the machine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_stack.files import read_json, write_json

KILLED_SECONDS = 10.0  # what was killed keeps its ports until it gets the processor once more


@dataclass(frozen=True)
class Identity:
    """One process, told apart from later ones with the same pid."""

    pid: int
    start_ticks: int  # field 22 of /proc/<pid>/stat, clock ticks since boot
    boot_id: str

    def is_alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        return identity_of(self.pid) == self

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


def identity_of(pid: int) -> Identity | None:
    """The identity of a live process; None when there is none, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, start_ticks = fields[0], int(fields[19])
    if state in ("Z", "X"):
        return None
    return Identity(pid=pid, start_ticks=start_ticks, boot_id=_boot_id())


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # hidden in some containers; the start time still tells processes apart
        return ""


def write_pid_file(path: Path, identity: Identity, **more: Any) -> None:
    record = {"pid": identity.pid, "start_ticks": identity.start_ticks, "boot_id": identity.boot_id, **more}
    write_json(path, record)


def read_pid_file(path: Path) -> Identity | None:
    """The process a pid file names, if it is alive."""
    record = read_json(path)
    try:
        identity = Identity(
            pid=int(record["pid"]), start_ticks=int(record["start_ticks"]), boot_id=str(record["boot_id"])
        )
    except (KeyError, ValueError):
        return None
    return identity if identity.is_alive() else None


def wait_gone(identities: Iterable[Identity], *, timeout_seconds: float) -> list[Identity]:
    """Wait until the processes are gone; return those that are still there."""
    deadline = time.monotonic() + timeout_seconds
    left = [identity for identity in identities if identity.is_alive()]
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = [identity for identity in left if identity.is_alive()]
    return left


def end_group(identity: Identity, *, grace_seconds: float, first: int = signal.SIGTERM) -> None:
    """Ask a process group to stop, and kill what is left of it after the grace. Its leader is gone then.

    Nothing happens when its leader is gone: the number may by now belong to somebody else.
    """
    if not identity.is_alive():
        return
    group = identity.pid
    identity.signal_group(first)
    wait_gone([identity], timeout_seconds=grace_seconds)
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
    wait_gone([identity], timeout_seconds=KILLED_SECONDS)
