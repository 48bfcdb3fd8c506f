"""How busy the slots are, and who else uses them: readings of /proc and of nvidia-smi."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from gpu_agents.agent.processes import MARK, environment_of
from oolong.contracts.agent import SlotInventory, SlotProcess
from oolong.gpu_slots import device_of
from oolong.system.process_handle import list_pids, stat_fields

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


def _usage_by_job() -> dict[str, tuple[float, int]]:
    """CPU seconds and resident bytes of the live processes of each job."""
    found: dict[str, tuple[float, int]] = {}
    jobs: dict[int, str] = {}
    for pid in list_pids():
        fields = stat_fields(pid)
        job = job_of(pid, jobs) if fields is not None else ""
        if fields is not None and job:
            seconds, memory = found.get(job, (0.0, 0))
            found[job] = (
                seconds + (int(fields[11]) + int(fields[12])) / _TICKS, memory + int(fields[21]) * _PAGE,
            )  # fmt: skip
    return found


def job_of(pid: int, known: dict[int, str] | None = None) -> str:
    """The job whose mark the process, or one above it, carries; empty: none. An engine has an environment of its own,
    and that of an isolated job may be unreadable. `known`: results of earlier calls, to which this one's is added."""
    known = {} if known is None else known
    if pid <= 1:
        return ""
    if pid not in known:
        job = _mark_of(pid)
        fields = None if job else stat_fields(pid)
        known[pid] = job if fields is None else job_of(int(fields[1]), known)
    return known[pid]


def _mark_of(pid: int) -> str:
    prefix = f"{MARK}=".encode()
    entry = next((entry for entry in environment_of(pid) if entry.startswith(prefix)), b"")
    return entry.removeprefix(prefix).decode(errors="replace")


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
        command = _command(pid)
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


def _command(pid: int) -> bytes | None:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None


def _printable(command: bytes) -> str:
    words = command.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in words)[:COMMAND_CHARACTERS]
