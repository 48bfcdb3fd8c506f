"""Control groups of both versions, on folders that look like the kernel's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from oolong.sandbox import cgroups
from oolong.sandbox.cgroups import Group, Groups, find_groups


@pytest.fixture(autouse=True)
def _folders_go_with_their_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel removes the files of a group with it; an ordinary file system does not."""

    def remove(group: Group) -> None:
        for folder in group._folders:
            shutil.rmtree(folder)

    monkeypatch.setattr(Group, "remove", remove)


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
    found = find_groups(root=root, own=own(tmp_path, "0::/service\n"))
    assert found is not None and found.kind == "cgroup v2"
    group = found.new(memory_bytes=1000, processes=7)
    (folder,) = found.left_over()
    assert folder.parent == root
    assert files_of(folder) == {"memory.max": "1000", "pids.max": "7"}
    group.add(42)
    assert (folder / "cgroup.procs").read_text() == "42"
    (folder / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert group.oom_kills() == 2
    assert group.peak_memory_bytes() is None, "memory.peak came later"
    (folder / "memory.peak").write_text("900\n")
    assert group.peak_memory_bytes() == 900


def test_version_2_without_one_of_the_controllers_is_none(tmp_path: Path) -> None:
    root = hierarchy(tmp_path / "cgroup", "service", controllers="cpu pids")
    assert find_groups(root=root, own=own(tmp_path, "0::/service\n")) is None


def test_version_1_has_a_folder_in_each_of_two_hierarchies(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    memory, pids = hierarchy(root / "memory", "service"), hierarchy(root / "pids")
    found = find_groups(root=root, own=own(tmp_path, "4:memory:/service\n8:pids:/\n0::/\n"))
    assert found is not None and found.kind == "cgroup v1"
    group = found.new(memory_bytes=1000, processes=7)
    one, other = found.left_over()
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
    Groups("cgroup v2", [tmp_path]).new(memory_bytes=1000, processes=7)
    (folder,) = tmp_path.iterdir()
    assert (folder / "memory.swap.max").read_text() == "0"


def test_groups_of_a_service_that_was_killed_are_removed_and_those_of_living_ones_stay(
    tmp_path: Path,
) -> None:
    gone, lives = tmp_path / f"{cgroups.NAME}-999999999-1-1", tmp_path / f"{cgroups.NAME}-{os.getpid()}-1-1"
    gone.mkdir()
    lives.mkdir()
    Groups("cgroup v2", [tmp_path])
    assert list(tmp_path.iterdir()) == [lives]
