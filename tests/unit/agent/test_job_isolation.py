"""A hostile loss under the real supervisor, on a node of root's and on one of a normal user's."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu_agents.agent.isolation import node
from gpu_agents.agent.isolation.node import CODE, PROBE_TRIES, ROOT
from gpu_agents.agent.isolation.view import View, command, links_of
from gpu_agents.agent.settings import AgentSettings, DataDirectory
from oolong.contracts.agent import JobIsolation
from oolong.sandbox.runtime_files import find_bubblewrap
from tests.support.isolation import REASON, namespace_error

NORMAL_UID = 500_000 + random.randrange(50_000)
SECONDS = 60


def as_normal_user(folder: Path) -> list[str]:
    """A view of the machine in which another user can reach this checkout and its Python."""
    temporary = folder.with_name("tmp")
    for path in (folder, temporary):
        path.mkdir(exist_ok=True)
        os.chown(path, NORMAL_UID, NORMAL_UID)
    view = View(
        bubblewrap=find_bubblewrap(), python=Path(sys.executable), uid=NORMAL_UID, directory=folder,
        read_only=(*CODE, ROOT / "tests", Path(sys.prefix), Path(sys.base_prefix)), writable=(folder,),
        temporary=temporary, links=tuple(links_of(Path(sys.executable)).items()),
    )  # fmt: skip
    words = command(view, [])
    words.remove("--unshare-pid")
    at = words.index("--proc")
    words[at : at + 2] = ["--bind", "/proc", "/proc"]  # whole, as a user of the machine has it
    return words


def after_the_attack(folder: Path, *, as_user: bool, wanted: str = "auto") -> dict[str, Any]:
    """What the node saw."""
    wrapped = as_normal_user(folder) if as_user and os.geteuid() == 0 else []
    words = [*wrapped, sys.executable, "-m", "tests.support.hostile_node", str(folder), wanted]
    ended = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "HOME": str(folder)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.fixture(scope="module")
def machine() -> Iterator[Path]:
    # Not below /tmp: of that every job has one of its own, and may write there what it likes.
    folder = Path(tempfile.mkdtemp(prefix="oolong-hostile-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


# A normal user can give no uids away.
@pytest.fixture(scope="module", params=["uid", "userns"] if os.geteuid() == 0 else ["userns"])
def report(request: pytest.FixtureRequest, machine: Path) -> dict[str, Any]:
    if request.param == "userns" and (refusal := namespace_error()):
        pytest.skip(f"{REASON}: {refusal}")
    folder = machine / request.param / "node"
    folder.mkdir(parents=True)
    found = after_the_attack(folder, as_user=request.param == "userns")
    assert found["isolation"] == request.param, found["reason"]
    return found


def test_without_isolation_the_same_loss_reaches_all_of_it(machine: Path) -> None:
    folder = machine / "none" / "node"
    folder.mkdir(parents=True)
    reached = " ".join(
        json.loads(after_the_attack(folder, as_user=True, wanted="none")["output"].splitlines()[0])
    )
    for hit in (
        "read",
        "list",
        "write",
        "replace",
        "create in",
        "signal the agent",
        "environments",
        "processes",
    ):
        assert hit in reached, reached


def test_a_hostile_loss_reaches_nothing_outside_its_attempt(report: dict[str, Any]) -> None:
    assert report["output"], "the loss did not run"
    assert json.loads(report["output"].splitlines()[0]) == {}


def test_a_job_that_kills_all_it_can_ends_itself_alone(report: dict[str, Any]) -> None:
    assert report["victim_lives"]
    assert report["left_behind"] == [] and not report["temporary_left"]


def test_its_files_are_removed_though_it_closed_them(report: dict[str, Any]) -> None:
    assert report["attempts_left"] == []


def test_as_root_no_two_attempts_have_the_same_uid(report: dict[str, Any]) -> None:
    victim, hostile = report["uids"]
    assert (victim != hostile and 0 not in (victim, hostile)) == (report["isolation"] == "uid")


@pytest.mark.skipif(bool(namespace_error()), reason=REASON)
def test_a_python_that_is_linked_from_elsewhere_starts_in_the_view(tmp_path: Path) -> None:
    """As tools that manage Pythons lay it: the environment's link leads to a folder that the view does not show."""
    folder, shims, temporary = (tmp_path / name for name in ("work", "shims", "tmp"))
    for path in (folder, shims, temporary):
        path.mkdir()
        path.chmod(0o777)
    (shims / "python").symlink_to(Path(sys.executable).resolve())
    (folder / "python").symlink_to(shims / "python")
    links = links_of(folder / "python")
    assert [*links][:2] == [folder / "python", shims / "python"]
    view = View(
        bubblewrap=find_bubblewrap(), python=Path(sys.executable), uid=NORMAL_UID if os.geteuid() == 0 else None,
        directory=folder, read_only=(*CODE, Path(sys.prefix), Path(sys.base_prefix)), writable=(folder,),
        temporary=temporary, links=tuple({**links, **links_of(Path(sys.executable))}.items()),
    )  # fmt: skip
    asked = [str(folder / "python"), "-I", "-S", "-c", "print('it runs')"]
    ended = subprocess.run(command(view, asked), capture_output=True, text=True, timeout=SECONDS)
    assert (ended.returncode, ended.stdout) == (0, "it runs\n"), ended.stderr


@pytest.mark.parametrize("timeouts", [1, PROBE_TRIES - 1, PROBE_TRIES])
def test_a_probe_that_times_out_is_repeated(
    timeouts: int, data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    probes: list[list[str]] = []

    def stalled(words: list[str], uid: int | None) -> None:
        probes.append(words)
        if len(probes) <= timeouts:
            raise subprocess.TimeoutExpired(words, node.PROBE_SECONDS)

    monkeypatch.setattr(node, "_check_probe", stalled)
    settings = AgentSettings(
        server="http://127.0.0.1", data_directory=data.root, node_python=sys.executable, name="node"
    )
    found = node.detect(settings, data)
    assert len(probes) == min(timeouts + 1, PROBE_TRIES)
    assert (found.kind is JobIsolation.NONE) == (timeouts == PROBE_TRIES)
    assert ("Restart the agent to probe again" in found.reason) == (timeouts == PROBE_TRIES)


@pytest.mark.skipif(bool(namespace_error()), reason=REASON)
def test_code_that_jobs_cannot_read_is_named_with_the_way_out(
    data: DataDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a strict umask leaves a checkout: each attempt's user would find half of the code."""
    folder = tmp_path / "code" / "rl"
    folder.mkdir(parents=True)
    monkeypatch.setattr(node, "CODE", (*CODE, folder.parent))
    settings = AgentSettings(
        server="http://127.0.0.1", data_directory=data.root, node_python=sys.executable, name="node"
    )
    assert node.detect(settings, data).kind is not JobIsolation.NONE
    folder.chmod(0)
    found = node.detect(settings, data)
    assert found.kind is JobIsolation.NONE
    assert f"cannot read {folder}" in found.reason and f"chmod -R go+rX {ROOT}" in found.reason
    folder.chmod(0o755)
