"""How busy the slots are, and who else uses them: readings of /proc and of nvidia-smi."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpu_agents.agent.processes import MARK
from oolong.contracts.agent import SlotInventory, SlotProcess
from oolong.gpu_slots import device_of
from oolong.system.process_handle import list_pids

COMMAND_CHARACTERS = 200
MOST_PROCESSES = 64
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


class CpuReadings:
    """Utilization and memory of CPU slots: those of the processes of the job that holds them, since the last call."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before: dict[str, tuple[float, float]] = {}  # job → time, CPU seconds of its processes

    def take(self, slots: list[SlotInventory], held: Mapping[str, list[str]]) -> list[SlotInventory]:
        """The slots with their readings. `held`: the slots of each job."""
        now, usage = self._clock(), _usage_by_job()
        readings: dict[str, tuple[float | None, int]] = {}
        for job, names in held.items():
            seconds, memory = usage.get(job, (0.0, 0))
            before = self._before.get(job)
            busy = None
            if before is not None and now > before[0]:
                busy = min(1.0, max(0.0, (seconds - before[1]) / (now - before[0]) / len(names)))
            readings |= dict.fromkeys(names, (busy, memory // len(names)))
        self._before = {job: (now, usage.get(job, (0.0, 0))[0]) for job in held}
        return [
            msgspec.structs.replace(slot, utilization=busy, memory_used_bytes=memory)
            for slot in slots
            for busy, memory in [readings.get(slot.slot, (0.0, 0))]
        ]


@dataclass(frozen=True)
class _Process:
    parent: int
    seconds: float  # of CPU time
    memory: int  # resident bytes


def _usage_by_job() -> dict[str, tuple[float, int]]:
    """CPU seconds and resident bytes of the live processes of each job."""
    found: dict[str, tuple[float, int]] = {}
    for pid in list_pids():
        process = _process(pid)
        job = job_of(pid) if process is not None else ""
        if process is not None and job:
            seconds, memory = found.get(job, (0.0, 0))
            found[job] = (seconds + process.seconds, memory + process.memory)
    return found


def job_of(pid: int) -> str:
    """The job whose mark the process, or one above it, carries; empty: none. An engine has an environment of its own,
    and that of an isolated job may be unreadable."""
    while pid > 1:
        if job := _mark_of(pid):
            return job
        process = _process(pid)
        pid = process.parent if process is not None else 0
    return ""


def _mark_of(pid: int) -> str:
    prefix = f"{MARK}=".encode()
    for entry in (_read(pid, "environ") or b"").split(b"\0"):
        if entry.startswith(prefix):
            return entry.removeprefix(prefix).decode(errors="replace")
    return ""


def _process(pid: int) -> _Process | None:
    stat = _read(pid, "stat")
    if not stat:
        return None
    fields = stat.rpartition(b")")[2].split()  # the command, which may contain anything, is before it
    return _Process(int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[21]) * _PAGE)


def parse_compute_apps(text: str) -> dict[str, list[SlotProcess]]:
    """Lines `GPU-<uuid>, <pid>, <MiB>` → the processes on each GPU that carry no job's mark.

    A pid that this machine does not show (a container lists those of its host) is left out: whose it is, is unknown.
    """
    found: dict[str, list[SlotProcess]] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 3 or not parts[1].isdigit():
            continue
        gpu, pid, mebibytes = parts[0], int(parts[1]), parts[2]
        command = _read(pid, "cmdline")
        if command is None or job_of(pid):
            continue
        processes = found.setdefault(gpu, [])
        if len(processes) < MOST_PROCESSES:
            processes.append(
                SlotProcess(
                    pid=pid, user=_user(pid), command=_printable(command),
                    memory_bytes=int(mebibytes) * 1024**2 if mebibytes.isdigit() else 0,
                )
            )  # fmt: skip
    return found


def with_foreign_processes(
    slots: list[SlotInventory], processes: Mapping[str, list[SlotProcess]]
) -> list[SlotInventory]:
    return [
        msgspec.structs.replace(slot, occupied_by=processes.get(device_of(slot.slot), [])) for slot in slots
    ]


def _user(pid: int) -> str:
    try:
        uid = (_PROC / str(pid)).stat().st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name[:80]
    except KeyError:
        return str(uid)


def _printable(command: bytes) -> str:
    words = command.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in words)[:COMMAND_CHARACTERS]


def _read(pid: int, name: str) -> bytes | None:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return None
