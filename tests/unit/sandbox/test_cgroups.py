"""Control groups of both versions, on folders that look like the kernel's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from oolong.sandbox import cgroups
from oolong.sandbox.cgroups import Cgroup, CgroupFactory, find_cgroups


@pytest.fixture(autouse=True)
def _folders_go_with_their_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel removes the files of a group with it; an ordinary file system does not."""

    def remove(group: Cgroup) -> None:
        for folder in group.folders:
            shutil.rmtree(folder, ignore_errors=True)

    monkeypatch.setattr(Cgroup, "remove", remove)


def hierarchy(folder: Path, *inner: str, controllers: str = "") -> Path:
    for place in (folder, *(folder / name for name in inner)):
        place.mkdir(parents=True, exist_ok=True)
        (place / "cgroup.procs").touch()
        (place / "cgroup.subtree_control").write_text("")
    (folder / "cgroup.subtree_control").write_text(controllers)
    return folder


def own(folder: Path, text: str) -> Path:
    path = folder / "own"
    path.write_text(text)
    return path


def files_of(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_version_2_is_found_where_memory_and_processes_are_handed_down(tmp_path: Path) -> None:
    root = hierarchy(tmp_path / "cgroup", "service", controllers="cpu memory pids")
    found = find_cgroups(root=root, own=own(tmp_path, "0::/service\n"))
    assert found is not None and found.kind == "cgroup v2"
    group = found.create(memory_bytes=1000, processes=7)
    (folder,) = found.remaining()
    assert folder.parent == root
    assert files_of(folder) == {"memory.max": "1000", "pids.max": "7", "cpu.max": "100000 100000"}
    group.add(42)
    assert (folder / "cgroup.procs").read_text() == "42"
    assert "cpu" in found.controllers and group.cpu_seconds() is None
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2\n")
    assert group.cpu_seconds() == 2.5
    (folder / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert group.oom_kills() == 2
    assert group.peak_memory_bytes() is None, "memory.peak came later"
    (folder / "memory.peak").write_text("900\n")
    assert group.peak_memory_bytes() == 900


def test_version_2_without_a_required_controller_is_rejected(tmp_path: Path) -> None:
    root = hierarchy(tmp_path / "cgroup", "service", controllers="cpu pids")
    assert find_cgroups(root=root, own=own(tmp_path, "0::/service\n")) is None


def test_without_the_controller_of_cores_memory_and_processes_are_bounded_all_the_same(
    tmp_path: Path,
) -> None:
    root = hierarchy(tmp_path / "cgroup", "service", controllers="memory pids")
    found = find_cgroups(root=root, own=own(tmp_path, "0::/service\n"))
    assert found is not None and "cpu" not in found.controllers
    found.create(memory_bytes=1000, processes=7)
    assert files_of(found.remaining()[0]) == {"memory.max": "1000", "pids.max": "7"}


def test_version_1_bounds_a_core_and_counts_time_where_it_has_the_hierarchies(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    for name in ("memory", "pids", "cpu,cpuacct"):
        hierarchy(root / name)
    for name in ("cpu", "cpuacct"):
        (root / name).symlink_to("cpu,cpuacct")
    found = find_cgroups(root=root, own=own(tmp_path, "4:memory:/\n8:pids:/\n2:cpu,cpuacct:/\n0::/\n"))
    assert found is not None and "cpu" in found.controllers
    group = found.create(memory_bytes=1000, processes=7)
    (cores,) = [folder for folder in found.remaining() if folder.parent.name == "cpu,cpuacct"]
    assert files_of(cores) == {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"}
    (cores / "cpuacct.usage").write_text("1500000000\n")
    assert group.cpu_seconds() == 1.5


def test_a_quota_that_the_kernel_refuses_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_text

    def as_the_kernel_does(file: Path, text: str) -> int:
        if file.name == "cpu.cfs_quota_us":
            raise OSError(22, "Invalid argument")  # a group above has less than a core
        return write(file, text)

    root = tmp_path / "cgroup"
    for name in ("memory", "pids", "cpu"):
        hierarchy(root / name)
    path = own(tmp_path, "4:memory:/\n8:pids:/\n1:cpu:/\n")
    monkeypatch.setattr(Path, "write_text", as_the_kernel_does)
    found = find_cgroups(root=root, own=path)
    assert found is not None and "cpu" not in found.controllers


def test_version_1_has_a_folder_in_each_of_two_hierarchies(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    memory, pids = hierarchy(root / "memory", "service"), hierarchy(root / "pids")
    found = find_cgroups(root=root, own=own(tmp_path, "4:memory:/service\n8:pids:/\n0::/\n"))
    assert found is not None and found.kind == "cgroup v1"
    group = found.create(memory_bytes=1000, processes=7)
    one, other = found.remaining()
    assert (one.parent, other.parent) == (memory / "service", pids)
    assert files_of(one) == {"memory.limit_in_bytes": "1000"} and files_of(other) == {"pids.max": "7"}
    group.add(42)
    assert [(folder / "cgroup.procs").read_text() for folder in (one, other)] == ["42", "42"]
    (one / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    (one / "memory.max_usage_in_bytes").write_text("900\n")
    assert (group.oom_kills(), group.peak_memory_bytes()) == (1, 900)


def test_swap_is_closed_where_the_kernel_accounts_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def as_the_kernel_does(folder: Path, *arguments: int) -> None:
        make(folder, *arguments)
        (folder / "memory.swap.max").write_text("max")

    monkeypatch.setattr(Path, "mkdir", as_the_kernel_does)
    CgroupFactory("cgroup v2", {"memory": tmp_path, "pids": tmp_path}).create(memory_bytes=1000, processes=7)
    (folder,) = tmp_path.iterdir()
    assert (folder / "memory.swap.max").read_text() == "0"


def test_groups_of_a_service_that_was_killed_are_removed_and_those_of_living_ones_stay(
    tmp_path: Path,
) -> None:
    gone, lives = tmp_path / f"{cgroups.NAME}-999999999-1-1", tmp_path / f"{cgroups.NAME}-{os.getpid()}-1-1"
    gone.mkdir()
    lives.mkdir()
    CgroupFactory("cgroup v2", {"memory": tmp_path, "pids": tmp_path})
    assert list(tmp_path.iterdir()) == [lives]
