"""Bounds by watching, where the kernel gives none: what the processes of a sandbox use together, read from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    memory_bytes: int  # resident; pages that processes share count in each
    processes: int  # and threads


def usage_of(root_pid: int) -> Usage:
    """Of a process and everything below it. Orphans of a pid namespace are children of its first process."""
    pages = threads = 0
    waiting = [root_pid]
    while waiting:
        pid = waiting.pop()
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
            with open(f"/proc/{pid}/statm", "rb") as file:
                pages += int(file.read().split()[1])
            for task in tasks:
                threads += 1
                with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                    waiting += [int(word) for word in file.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return Usage(memory_bytes=pages * _PAGE, processes=threads)


def shared_out_memory_bytes(root_pid: int) -> int:
    """The same memory with shared pages counted once: exact, and too slow to ask for often.

    Where this service may not look, shared pages count in each process, so that the bound is met earlier.
    """
    total = 0
    waiting = [root_pid]
    while waiting:
        pid = waiting.pop()
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                for line in file:
                    if line.startswith(b"Pss:"):
                        total += int(line.split()[1]) * 1024
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                    waiting += [int(word) for word in file.read().split()]
        except PermissionError:
            return usage_of(root_pid).memory_bytes
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


@dataclass(frozen=True)
class Scratch:
    bytes: int
    files: int


def scratch_use(descriptor: int) -> Scratch:
    """Of the tmpfs that the open folder belongs to."""
    state = os.fstatvfs(descriptor)
    return Scratch(
        bytes=(state.f_blocks - state.f_bfree) * state.f_frsize, files=state.f_files - state.f_ffree
    )
