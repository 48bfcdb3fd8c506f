"""Reads the resource usage of all processes in a sandbox from /proc, for limits that the kernel does not enforce.

CPU time is read here even with control groups: the kernel does not limit the total time of several processes, and does
not tell a slow program from one that waited for a core.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
PIPE_BYTES = 64 * 1024  # what a pipe holds; the filter of system calls lets none grow


def _socket_bytes() -> int:
    """What may lie in one socket: the kernel doubles the largest buffer that a program may ask for."""
    try:
        with open("/proc/sys/net/core/wmem_max", "rb") as file:
            return 2 * int(file.read())
    except (OSError, ValueError):
        return 2 * 212_992


SOCKET_BYTES = _socket_bytes()


@dataclass(frozen=True)
class Usage:
    memory_bytes: (
        int  # resident, and what may lie in pipes and sockets; pages that processes share count in each
    )
    processes: int  # and threads
    cpu_seconds: float = 0.0  # of what runs, and of what it has waited for


def measure_usage(root_pid: int) -> Usage:
    """Usage of a process and its descendants. Orphans in a PID namespace become children of process 1."""
    pages = threads = ticks = 0
    pipes: set[str] = set()
    sockets: set[str] = set()
    for pid, tasks in _processes(root_pid):
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                pages += int(file.read().split()[1])
            with open(f"/proc/{pid}/stat", "rb") as file:
                # Behind the name, which may hold anything: user and system time, and those of reaped children.
                ticks += sum(int(word) for word in file.read().rpartition(b")")[2].split()[11:15])
            threads += len(tasks)
            if pid != root_pid:
                for name in _open_files(pid):
                    if name.startswith("socket:"):
                        sockets.add(name)
                    elif name.startswith("pipe:"):
                        pipes.add(name)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return Usage(
        memory_bytes=pages * _PAGE + len(pipes) * PIPE_BYTES + len(sockets) * SOCKET_BYTES,
        processes=threads,
        cpu_seconds=ticks / _TICKS,
    )


def proportional_memory_bytes(root_pid: int) -> int:
    """Memory with shared pages counted once (PSS): exact, but too slow for frequent polling.

    Without permission to read it, shared pages count in each process, so the limit is reached earlier.
    """
    total = resident = 0
    for pid, _ in _processes(root_pid):
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                resident += int(file.read().split()[1]) * _PAGE
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                for line in file:
                    if line.startswith(b"Pss:"):
                        total += int(line.split()[1]) * 1024
        except PermissionError:
            return measure_usage(root_pid).memory_bytes
        except (FileNotFoundError, ProcessLookupError):
            continue
    # What lies in pipes and sockets is no process's page.
    return total + max(0, measure_usage(root_pid).memory_bytes - resident)


@dataclass(frozen=True)
class ThreadSchedule:
    """How long a thread ran, and how long it was runnable without a core."""

    ran_seconds: float
    waited_seconds: float


def thread_schedules(root_pid: int) -> dict[int, ThreadSchedule]:
    """Schedules of all threads of a process and its descendants, by id; empty without kernel support."""
    found = {}
    for pid, tasks in _processes(root_pid):
        for task in tasks:
            try:
                with open(f"/proc/{pid}/task/{task}/schedstat", "rb") as file:
                    ran, waited = file.read().split()[:2]
            except (OSError, ValueError):
                continue  # it has ended, or there is no such file
            found[int(task)] = ThreadSchedule(int(ran) / 1e9, int(waited) / 1e9)
    return found


def starved_seconds(threads: dict[int, ThreadSchedule], cpu_seconds: float) -> float:
    """Lower bound of the time in which other programs used the cores that this one could have run on.

    `cpu_seconds`: of all its threads, the ended ones too. A thread may have waited for its own siblings: as long as
    these ran, at most. So a program cannot starve itself.
    """
    return max(
        (one.waited_seconds - max(0.0, cpu_seconds - one.ran_seconds) for one in threads.values()),
        default=0.0,
    )


@dataclass(frozen=True)
class ScratchUsage:
    bytes: int
    files: int


def measure_scratch(descriptor: int) -> ScratchUsage:
    """Usage of the tmpfs that contains the open directory."""
    state = os.fstatvfs(descriptor)
    return ScratchUsage(
        bytes=(state.f_blocks - state.f_bfree) * state.f_frsize, files=state.f_files - state.f_ffree
    )


def _processes(root_pid: int) -> Iterator[tuple[int, list[str]]]:
    """Each process with its thread ids, from the root down."""
    waiting = [root_pid]
    while waiting:
        pid = waiting.pop()
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
            for task in tasks:
                with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                    waiting += [int(word) for word in file.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        yield pid, tasks


def _open_files(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except PermissionError:  # a service that may not look has control groups, or counts pages alone
        return
    for name in names:
        try:
            yield os.readlink(f"{folder}/{name}")
        except PermissionError:  # it has closed itself to others since
            return
        except (FileNotFoundError, ProcessLookupError):
            continue
