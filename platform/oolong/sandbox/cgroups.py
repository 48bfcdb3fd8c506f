"""Hard bounds of memory and processes by control groups, version 2 or 1, where this service may make them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

NAME = "oolong-sandbox"
REMOVE_SECONDS = 2.0


class Group:
    """The control group of one sandbox."""

    def __init__(self, kind: Literal["cgroup v1", "cgroup v2"], folders: list[Path]) -> None:
        self._kind = kind
        self._folders = folders  # v1: one of the memory hierarchy, one of pids; v2: one

    def add(self, pid: int) -> None:
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def oom_kills(self) -> int:
        file = "memory.events" if self._kind == "cgroup v2" else "memory.oom_control"
        return _counter(self._folders[0] / file, "oom_kill")

    def peak_memory_bytes(self) -> int | None:
        file = "memory.peak" if self._kind == "cgroup v2" else "memory.max_usage_in_bytes"
        try:
            return int((self._folders[0] / file).read_text())
        except FileNotFoundError:  # memory.peak came with Linux 5.19
            return None

    def remove(self) -> None:
        """Its processes are dead; the kernel may need a moment to take them out."""
        deadline = time.monotonic() + REMOVE_SECONDS
        for folder in self._folders:
            while True:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    pass
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.005)
                    continue
                break


class Groups:
    """Where groups can be made: found once, by trying."""

    def __init__(self, kind: Literal["cgroup v1", "cgroup v2"], bases: list[Path]) -> None:
        self.kind = kind
        self._bases = bases
        self._count = 0
        self._sweep()

    def new(self, *, memory_bytes: int, processes: int) -> Group:
        self._count += 1
        folders = [base / f"{NAME}-{os.getpid()}-{id(self) & 0xFFFF}-{self._count}" for base in self._bases]
        for folder in folders:
            folder.mkdir()
        group = Group(self.kind, folders)
        try:
            for file, value in _settings(self.kind, memory_bytes=memory_bytes, processes=processes):
                folder = folders[-1] if file.startswith("pids.") else folders[0]
                (folder / file).write_text(str(value))
            for folder in folders:
                _without_swap(folder, memory_bytes)
        except OSError:
            group.remove()
            raise
        return group

    def left_over(self) -> list[Path]:
        """Groups of this object that are still there."""
        return [
            folder
            for base in self._bases
            for folder in base.glob(f"{NAME}-{os.getpid()}-{id(self) & 0xFFFF}-*")
        ]

    def _sweep(self) -> None:
        """Remove the empty groups of services that were killed."""
        for base in self._bases:
            for folder in base.glob(f"{NAME}-*"):
                pid = folder.name.removeprefix(f"{NAME}-").partition("-")[0]
                if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                    try:
                        folder.rmdir()
                    except OSError:
                        continue  # not empty, or another service was first


def _settings(kind: str, *, memory_bytes: int, processes: int) -> list[tuple[str, int]]:
    if kind == "cgroup v2":
        return [("memory.max", memory_bytes), ("pids.max", processes)]
    return [("memory.limit_in_bytes", memory_bytes), ("pids.max", processes)]


def _without_swap(folder: Path, memory_bytes: int) -> None:
    """Where the kernel accounts for swap, none may be used; elsewhere the file is not there."""
    for file, value in (("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", memory_bytes)):
        if (folder / file).exists():
            (folder / file).write_text(str(value))


def find_groups(
    *, root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> Groups | None:
    """The first place where a group with both bounds can really be made; None when there is none."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    paths = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in lines if line.count(":") >= 2}
    candidates: list[Groups] = []
    if "" in paths:
        for unified in (root, root / "unified"):
            candidates += [
                Groups("cgroup v2", [folder])
                for folder in _upwards(unified, paths[""])
                if {"memory", "pids"} <= set(_words(folder / "cgroup.subtree_control"))
            ]
    if "memory" in paths and "pids" in paths:
        memory = _upwards(root / "memory", paths["memory"])
        pids = _upwards(root / "pids", paths["pids"])
        candidates += [Groups("cgroup v1", [memory[0], pids[0]])] if memory and pids else []
    for groups in candidates:
        try:
            groups.new(memory_bytes=64 * 1024**2, processes=8).remove()
        except OSError:
            continue
        return groups
    return None


def _upwards(base: Path, inner: str) -> list[Path]:
    """The own group's folder and those above it, as far as they are there."""
    folder = base / inner.strip("/")
    found = []
    while folder != base.parent:
        if (folder / "cgroup.procs").exists():
            found.append(folder)
        folder = folder.parent
    return found


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _counter(file: Path, name: str) -> int:
    for line in file.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
