"""Lines that commands print for one run: its boot checklist, staleness against the bound, conditions."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oolong.cli.run_output import boot_lines, progress_line, staleness_words, state_of
from oolong.cli.run_wait import ProgressLines
from oolong.client.models import Run, Staleness
from tests.support.scripted_api import shaped

NOW = datetime.now(UTC)


def run(**fields: Any) -> Run:
    return Run.model_validate(shaped(Run, **{"id": "run_1", "status": "RUNNING", **fields}))


def stage(name: str, state: str, began: float | None, ended: float | None = None, detail: str = "") -> Any:
    """Seconds before now."""
    return {
        "name": name, "title": name.capitalize(), "state": state, "detail": detail,
        "started_at": None if began is None else NOW - timedelta(seconds=began),
        "ended_at": None if ended is None else NOW - timedelta(seconds=ended),
    }  # fmt: skip


def boot(*stages: Any, done: bool = False) -> dict[str, Any]:
    return {"attempt_number": 1, "done": done, "stages": list(stages)}


QUEUE = stage("queue", "done", 200, 195)
INPUTS = stage("inputs", "done", 195, 135, "120.0 MB")
ENGINE = stage("engine", "active", 135, None, "boot failed, retrying: rollout-0: no memory")
STEP = stage("step", "waiting", None)


def test_checklist_has_durations_and_the_detail_of_the_active_stage() -> None:
    lines = boot_lines(run(boot=boot(QUEUE, INPUTS, ENGINE, STEP)))
    assert lines[:2] == ["✓ Queue  5 s", "✓ Inputs  60 s  120.0 MB"]
    found = re.fullmatch(r"… Engine  (\d+) s  boot failed, retrying: rollout-0: no memory", lines[2])
    assert found is not None and int(found[1]) >= 135, lines[2]
    assert lines[3] == "  Step"
    assert boot_lines(run(boot=boot(QUEUE, done=True))) == []


def test_progress_line_names_the_stage_without_durations() -> None:
    line = progress_line(run(boot=boot(QUEUE, INPUTS, ENGINE, STEP)))
    assert line == "RUNNING  boot: engine (boot failed, retrying: rollout-0: no memory)"
    waiting = run(
        status="QUEUED", pending_reason="2 slots are needed", boot=boot(stage("queue", "active", 9))
    )
    assert progress_line(waiting) == "QUEUED: 2 slots are needed"


def test_cause_is_printed_once_and_without_its_log() -> None:
    message = "rollout-0: the engine ended with status 1: no memory\nThe end of engine.log:\nTraceback"
    failing = stage("engine", "active", 135, None, f"boot failed, retrying: {message}")
    found = run(boot=boot(failing), status="RECOVERING", reason_message=message)
    cause = message.splitlines()[0]
    assert state_of(found) == f"RECOVERING: {cause}"
    assert progress_line(found) == f"RECOVERING: {cause}  boot: engine (boot failed, retrying)"
    assert boot_lines(found)[0].endswith("s  boot failed, retrying")


def test_wait_prints_each_stage_once_and_no_stage_of_an_earlier_boot(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = ProgressLines()
    lines(run(boot=boot(QUEUE, stage("inputs", "active", 195))))
    lines(run(boot=boot(QUEUE, INPUTS, ENGINE)))
    lines(run(boot=boot(QUEUE, INPUTS, stage("engine", "failed", 135, None, "rollout-0: no memory"))))
    said = capsys.readouterr().err
    assert said.count("✓ Queue  5 s") == said.count("✓ Inputs  60 s  120.0 MB") == 1
    assert "✗ Engine  rollout-0: no memory" in said
    ProgressLines()(run(boot=boot(QUEUE, INPUTS, done=True)))
    assert "Queue" not in capsys.readouterr().err


EXCEEDED = {
    "max": 2, "on_straggler": "keep", "mean": 2.5, "realized_max": 5, "exceeded_groups": 12,
    "trained_groups": 40, "message": "12 of 40 trained groups (30%) were older than max staleness.",
}  # fmt: skip


def test_staleness_is_said_against_its_bound(capsys: pytest.CaptureFixture[str]) -> None:
    within = run(staleness_mean=0.5, staleness=shaped(Staleness, max=2, on_straggler="wait"))
    assert staleness_words(within) == "0.50 (max 2, wait)"
    over = run(staleness_mean=2.5, staleness=EXCEEDED)
    assert (
        staleness_words(over)
        == "2.50 (max 2, keep): 12 of 40 trained groups (30%) were older than max staleness."
    )
    lines = ProgressLines()
    lines(over)
    lines(over)
    assert capsys.readouterr().err.count("12 of 40 trained groups") == 1
    assert staleness_words(run()) is None


def test_conditions_stand_beside_the_status() -> None:
    rests = run(status="PAUSED", conditions=["NEEDS_ATTENTION"], reason_message="60% got no score")
    assert state_of(rests) == "PAUSED (NEEDS_ATTENTION): 60% got no score"
