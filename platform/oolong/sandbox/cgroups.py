"""Limits memory, processes and CPU with control groups, version 2 or 1, where this service may create them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

NAME = "oolong-sandbox"
REMOVE_SECONDS = 2.0
CPU_PERIOD_MICROSECONDS = 100_000
REQUIRED = ("memory", "pids")
# Without `cpu` a sandbox may take every core, and without `cpuacct` (version 1; version 2 always counts) its time is
# summed from /proc.
OPTIONAL = ("cpu", "cpuacct")
Kind = Literal["cgroup v1", "cgroup v2"]


class Cgroup:
    """The control group of one sandbox."""

    def __init__(self, kind: Kind, folders: dict[str, Path]) -> None:
        self._kind = kind
        self._of = folders  # by controller; of version 2 it is one folder for all

    @property
    def folders(self) -> list[Path]:
        return list(dict.fromkeys(self._of.values()))

    def add(self, pid: int) -> None:
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def set_limits(self, *, memory_bytes: int, processes: int) -> None:
        """Limit memory (without swap) and processes, and allow one core, so no sandbox starves another."""
        memory, cpu = self._of["memory"], self._of.get("cpu")
        if self._kind == "cgroup v2":
            (memory / "memory.max").write_text(str(memory_bytes))
            if cpu is not None:
                (cpu / "cpu.max").write_text(f"{CPU_PERIOD_MICROSECONDS} {CPU_PERIOD_MICROSECONDS}")
        else:
            (memory / "memory.limit_in_bytes").write_text(str(memory_bytes))
            if cpu is not None:
                (cpu / "cpu.cfs_period_us").write_text(str(CPU_PERIOD_MICROSECONDS))
                (cpu / "cpu.cfs_quota_us").write_text(str(CPU_PERIOD_MICROSECONDS))
        (self._of["pids"] / "pids.max").write_text(str(processes))
        # Where the kernel accounts for swap, none may be used; elsewhere the file is not there.
        for file, value in (("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", memory_bytes)):
            if (memory / file).exists():
                (memory / file).write_text(str(value))

    def oom_kills(self) -> int:
        file = "memory.events" if self._kind == "cgroup v2" else "memory.oom_control"
        return _counter(self._of["memory"] / file, "oom_kill")

    def peak_memory_bytes(self) -> int | None:
        file = "memory.peak" if self._kind == "cgroup v2" else "memory.max_usage_in_bytes"
        try:
            return int((self._of["memory"] / file).read_text())
        except FileNotFoundError:  # memory.peak came with Linux 5.19
            return None

    def cpu_seconds(self) -> float | None:
        """CPU time of all processes, exited ones included. None where no controller counts it."""
        try:
            if self._kind == "cgroup v2":
                return _counter(self._of["memory"] / "cpu.stat", "usage_usec") / 1e6
            if "cpuacct" in self._of:
                return int((self._of["cpuacct"] / "cpuacct.usage").read_text()) / 1e9
        except FileNotFoundError:
            pass
        return None

    def remove(self) -> None:
        """Remove the group. Its processes have exited, but the kernel may take a moment to detach them."""
        deadline = time.monotonic() + REMOVE_SECONDS
        for folder in self.folders:
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


class CgroupFactory:
    """Creates cgroups below directories that were tested once."""

    def __init__(self, kind: Kind, bases: dict[str, Path]) -> None:
        self.kind = kind
        self._bases = bases  # by controller
        self._count = 0
        self._remove_stale()

    @property
    def controllers(self) -> frozenset[str]:
        return frozenset(self._bases)

    def create(self, *, memory_bytes: int, processes: int) -> Cgroup:
        self._count += 1
        name = f"{NAME}-{os.getpid()}-{id(self) & 0xFFFF}-{self._count}"
        group = Cgroup(self.kind, {controller: base / name for controller, base in self._bases.items()})
        try:
            for folder in group.folders:
                folder.mkdir()
            group.set_limits(memory_bytes=memory_bytes, processes=processes)
        except OSError:
            group.remove()
            raise
        return group

    def without(self, controller: str) -> CgroupFactory:
        return CgroupFactory(
            self.kind, {name: base for name, base in self._bases.items() if name != controller}
        )

    def remaining(self) -> list[Path]:
        """Groups of this object that are still there."""
        return [
            folder
            for base in dict.fromkeys(self._bases.values())
            for folder in base.glob(f"{NAME}-{os.getpid()}-{id(self) & 0xFFFF}-*")
        ]

    def _remove_stale(self) -> None:
        """Remove empty cgroups of services that were killed."""
        for base in dict.fromkeys(self._bases.values()):
            for folder in base.glob(f"{NAME}-*"):
                pid = folder.name.removeprefix(f"{NAME}-").partition("-")[0]
                if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                    try:
                        folder.rmdir()
                    except OSError:
                        continue  # not empty, or another service was first


def find_cgroups(
    *, root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> CgroupFactory | None:
    """The first directory where a cgroup with both required controllers can be created, else None."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    paths = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in lines if line.count(":") >= 2}
    for factory in [*_unified(root, paths), *_of_version_1(root, paths)]:
        if (tried := _usable_controllers(factory)) is not None:
            return tried
    return None


def _usable_controllers(factory: CgroupFactory) -> CgroupFactory | None:
    """Drop optional controllers until a cgroup can be created. None if the required ones fail."""
    while True:
        try:
            factory.create(memory_bytes=64 * 1024**2, processes=8).remove()
        except OSError:
            spare = next((name for name in OPTIONAL if name in factory.controllers), None)
            if spare is None:
                return None
            factory = factory.without(spare)
        else:
            return factory


def _unified(root: Path, paths: dict[str, str]) -> list[CgroupFactory]:
    found = []
    for unified in (root, root / "unified") if "" in paths else ():
        for folder in _upwards(unified, paths[""]):
            controllers = set(_words(folder / "cgroup.subtree_control"))
            if set(REQUIRED) <= controllers:
                names = [*REQUIRED, *(["cpu"] if "cpu" in controllers else [])]
                found.append(CgroupFactory("cgroup v2", dict.fromkeys(names, folder)))
    return found


def _of_version_1(root: Path, paths: dict[str, str]) -> list[CgroupFactory]:
    """Each controller has a hierarchy of its own, or shares one: `cpu,cpuacct`."""
    bases: dict[str, Path] = {}
    for names, inner in paths.items():
        for name in names.split(","):
            if name in (*REQUIRED, *OPTIONAL) and (above := _upwards(root / name, inner)):
                bases[name] = above[0].resolve()
    return [CgroupFactory("cgroup v1", bases)] if set(REQUIRED) <= set(bases) else []


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
