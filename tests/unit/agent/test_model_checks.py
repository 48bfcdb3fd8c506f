"""Models below directories that a node offers: looked at by a process, told to the server, held to at a run's start."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_agents.agent import side_process
from gpu_agents.agent.__main__ import _parser
from gpu_agents.agent.api import ApiError, ServerUnavailable
from gpu_agents.agent.isolation.node import NodeIsolation
from gpu_agents.agent.model_checks import ModelChecks
from gpu_agents.agent.preparation import ModelUnusable, Preparer
from gpu_agents.agent.settings import AgentSettings, DataDirectory
from gpu_agents.model_check.__main__ import check
from oolong.contracts.agent import JobIsolation
from oolong.contracts.model_report import RESULT_FILE, CheckOrder, ModelReport
from tests.support.model_files import PARAMETERS, files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory that the node offers, with one good model."""
    model = tmp_path / "root" / "tiny"
    model.mkdir(parents=True)
    for name, data in files().items():
        (model / name).write_bytes(data)
    return tmp_path / "root"


def test_a_good_model_is_reported_with_its_manifest(root: Path) -> None:
    report = check(str(root / "tiny"), [str(root)])
    assert (report.message, report.parameters, len(report.files)) == ("", PARAMETERS, 4)
    assert len(report.manifest_sha256) == 64
    (root / "tiny" / "generation_config.json").write_text("{}")
    assert check(str(root / "tiny"), [str(root)]).manifest_sha256 != report.manifest_sha256


def test_what_cannot_be_looked_at_has_a_code(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "file").write_text("x")
    (root / "empty").mkdir()
    (root / "linked").mkdir()
    (root / "linked" / "config.json").symlink_to(tmp_path / "secret")
    for path, codes in (
        (tmp_path / "secret", {"path_not_offered"}), (root / "gone", {"not_there"}), (root / "link", {"link_outside"}),
        (root / "file", {"not_a_directory"}), (root / "empty", {"missing_file"}),
    ):  # fmt: skip
        assert {fault.code for fault in check(str(path), [str(root)]).faults} == codes, path
    assert "link_outside" in {fault.code for fault in check(str(root / "linked"), [str(root)]).faults}


@dataclass
class Plane:
    """The control plane's side, as the agent's API offers it."""

    path: str
    told: list[ModelReport] = field(default_factory=list)
    away_once: bool = False
    refused: bool = False
    refuses_reports: list[ApiError] = field(default_factory=list)  # one after the other

    async def begin_model_check(self, check_id: str) -> CheckOrder:
        if self.refused:
            raise ApiError(404, "not_found", "another's")
        return CheckOrder(check_id=check_id, path=self.path)

    async def report_model_check(self, check_id: str) -> None: ...

    async def complete_model_check(self, check_id: str, report: ModelReport) -> None:
        if self.away_once:
            self.away_once = False
            raise ServerUnavailable("away")
        if self.refuses_reports:
            raise self.refuses_reports.pop(0)
        self.told.append(report)


def run(plane: Plane, data: DataDirectory, root: Path) -> None:
    async def go() -> None:
        checks = ModelChecks(plane, data, [str(root)])  # type: ignore[arg-type]
        checks.assign(["mchk_1"])
        assert checks._task is not None
        await checks._task

    asyncio.run(asyncio.wait_for(go(), 120))


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    directory = DataDirectory(tmp_path / "data")
    directory.create()
    return directory


def test_a_process_checks_and_its_result_is_reported_even_after_an_outage(
    root: Path, data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = Plane(str(root / "tiny"), away_once=True)
    run(plane, data, root)
    assert plane.told == []
    monkeypatch.setattr(side_process, "sys", SimpleNamespace(executable="/nowhere"))  # it does not look again
    run(plane, data, root)
    (report,) = plane.told
    assert (report.faults, report.parameters) == ([], PARAMETERS)
    assert not data.model_check("mchk_1").exists()


def test_a_process_that_dies_and_a_check_of_another_node(
    root: Path, data: DataDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dying = tmp_path / "dying"
    dying.write_text("#!/bin/sh\necho out of memory >&2\nexit 3\n")
    dying.chmod(0o755)
    monkeypatch.setattr(side_process, "sys", SimpleNamespace(executable=str(dying)))
    plane = Plane(str(root / "tiny"))
    run(plane, data, root)
    assert plane.told[0].faults[0].code == "check_died"
    assert "out of memory" in plane.told[0].message
    foreign = Plane(str(root / "tiny"), refused=True)
    run(foreign, data, root)
    assert foreign.told == [] and not data.model_check("mchk_1").exists()


def test_a_report_that_is_refused_or_unreadable_ends_the_check(root: Path, data: DataDirectory) -> None:
    plane = Plane(str(root / "tiny"), refuses_reports=[ApiError(413, "too_large", "the body")])
    run(plane, data, root)
    data.model_check("mchk_1").mkdir(parents=True)
    (data.model_check("mchk_1") / RESULT_FILE).write_text('{"tokens": 2.5}')
    run(plane, data, root)
    assert [report.faults[0].code for report in plane.told] == ["check_failed", "check_failed"]
    assert "413 too_large" in plane.told[0].message and "damaged" in plane.told[1].message
    assert not data.model_check("mchk_1").exists()
    gone = Plane(str(root / "tiny"), refuses_reports=[ApiError(409, "stale_epoch", "it has ended")])
    run(gone, data, root)
    assert gone.told == [] and not data.model_check("mchk_1").exists()


def test_a_run_gets_only_what_the_node_offers_and_as_it_was_checked(root: Path, data: DataDirectory) -> None:
    settings = AgentSettings(
        server="http://127.0.0.1",
        data_directory=data.root,
        node_python="",
        name="n",
        model_roots=(str(root),),
    )
    not_isolated = NodeIsolation(kind=JobIsolation.NONE, data=data)
    preparer = Preparer(settings, data, SimpleNamespace(), on_progress=lambda: None, isolation=not_isolated)  # type: ignore[arg-type]

    def model_of(path: Path, **sizes: int) -> Path:
        attempt: Any = SimpleNamespace(model=None, model_path=str(path), model_files=sizes)
        return preparer._offered_model(attempt)

    size = (root / "tiny" / "tokenizer.json").stat().st_size
    assert model_of(root / "tiny", **{"tokenizer.json": size}) == root / "tiny"
    (root.parent / "outside").mkdir()
    (root.parent / "outside" / "config.json").write_text("{}")
    (root / "link").symlink_to(root.parent / "outside")
    (root / "tiny" / "secret.json").symlink_to(root.parent / "outside" / "config.json")
    (root / "alias").symlink_to(root / "tiny")
    assert model_of(root / "alias", **{"tokenizer.json": size}) == root / "alias"
    for path, sizes, message in (
        (root / "link", {}, "leads out"), (root / "tiny", {"secret.json": 2}, "leads out"),
        (root.parent, {}, "--model-root"), (root / "gone", {}, "no config.json"),
        (root / "tiny", {"tokenizer.json": size + 1}, "register it again"), (root / "tiny", {"w": 1}, "does not exist"),
    ):  # fmt: skip
        with pytest.raises(ModelUnusable, match=message):
            model_of(path, **sizes)


def test_roots_are_given_to_the_agent_as_absolute_directories(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--server", "http://127.0.0.1", "--data-dir", "/d", "--node-python", "p"]
    options = _parser().parse_args([*words, "--model-root", "/models/", "--model-root", "/more"])
    assert options.model_root == ["/models", "/more"]
    with pytest.raises(SystemExit):
        _parser().parse_args([*words, "--model-root", "models"])
    assert "an absolute path" in capsys.readouterr().err
