"""The report of a reward test as `oolong reward get` prints it."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from oolong.cli.app import app
from oolong.client.models import RewardTest
from tests.support.scripted_api import shaped

REPORT: dict[str, Any] = {
    "range": {"model_mean": 0.5625},
    "zero_variance_frac": 0.75,
    "determinism": {"checked": 256, "differing": 3},
    "latency_seconds": {"p50": 0.0004, "p95": 0.002, "max": 1.0},
    "reasons": [{"level": "note", "code": "any", "message": "the prompt must ask for the format"}],
    "probes": {"echo": {"mean": 0.0, "max": 0.0, "success_frac": 0.25}},
}


def printed(report: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    found = RewardTest.model_validate(shaped(RewardTest, result="green", report=report))
    monkeypatch.setattr("oolong.client.sync.reward_tests.RewardTests.get", lambda self, test_id: found)
    done = CliRunner().invoke(
        app, ["reward", "get", "rwt_1"], env={"OOLONG_URL": "http://127.0.0.1:1", "OOLONG_TOKEN": "ool_pat_x"}
    )
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_report_says_what_the_models_completions_score(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(REPORT, monkeypatch).splitlines()
    assert "  note: the prompt must ask for the format" in lines
    assert (
        "  the model's completions score 0.562 on average; on 75% of the rows all of them score the same"
        in lines
    )
    assert "  scored twice, 3 of 256 completions differ" in lines
    assert "  a score takes 0.4 ms (p50), 2 ms (p95)" in lines
    assert "echo\t0\t0\t25% of rows" in lines


def test_a_test_without_completions_of_the_model_has_no_line_about_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = {**REPORT, "range": None, "zero_variance_frac": None, "latency_seconds": None}
    assert "model's" not in printed(report, monkeypatch)
