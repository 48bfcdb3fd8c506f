"""What CI makes of a run that has ended: assertions, comparisons within a noise band, and their reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import pytest

from oolong.cli.gate.noise import Band, Measured, band, judge, student_t95
from oolong.cli.gate.verdict import Verdict
from oolong.contracts.assertions import parse
from tests.support.scripted_api import TOKEN, Answer, Asked, ScriptedApi, problem, run
from tests.unit.cli.conftest import Oolong

ROOT = Path(__file__).resolve().parents[3]


def measured(api: ScriptedApi, run_id: str = "run_1", status: str = "SUCCEEDED", **metrics: Any) -> None:
    """A run that has ended, with the points of its metrics; `eval_accuracy=…` stands for eval/accuracy."""
    points = {
        name.replace("_", "/", 1): value if isinstance(value, list) else [value]
        for name, value in metrics.items()
    }
    api.script[f"GET runs/{run_id}"] = Answer(run(status, id=run_id))
    api.script[f"GET runs/{run_id}/metric-names"] = Answer(
        {"data": [{"name": name, "unit": "", "axis": "step", "sources": ["trainer"], "last_x": len(values)}
                  for name, values in points.items()]}
    )  # fmt: skip

    def series(asked: Asked) -> Answer:
        name, after = asked.query["names"], int(asked.query.get("after_x", -1))
        kept = [(x, value) for x, value in enumerate(points[name], start=1) if x > after]
        shown = {"name": name, "unit": "", "axis": "step", "source": "trainer", "attempt": 1,
                 "x": [x for x, _ in kept], "value": [value for _, value in kept]}  # fmt: skip
        return Answer({"series": [shown], "seq": 1})

    api.script[f"GET runs/{run_id}/metrics"] = series


@pytest.mark.parametrize(
    ("text", "values", "holds"),
    [
        ("reward/mean >= 0.5", [0.9, 0.5], True),
        ("mean(reward/mean) > 0.6", [0.9, 0.5], True),
        ("mean(reward/mean, 2) > 0.6", [0.9, 0.5, 0.5], False),
        ("min(reward/mean) >= 0.5", [0.4, 0.9], False),
        ("max(reward/mean , 3) == 0.9", [0.9, 0.5], True),
        ("last(reward/mean) < .5", [0.9, 0.4], True),
    ],
)
def test_an_assertion_is_about_the_last_point_or_a_window(
    text: str, values: list[float], holds: bool
) -> None:
    assertion = parse(text)
    assert assertion.holds(assertion.of(values)) is holds
    assert parse(str(assertion)) == assertion, "it reads back what it says"


@pytest.mark.parametrize(
    "text",
    [
        "reward",
        "reward/mean >= high",
        "median(a) > 1",
        "mean(a, 0) > 1",
        "mean(summary.x) > 1",
        "a > 1.2.3",
        "mean(a > 1",
    ],
)
def test_what_is_no_assertion_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match="assertion") as refused:
        parse(text)
    assert text in str(refused.value)


def test_the_band_of_seeds_is_students_t_for_a_new_observation() -> None:
    seeds = [Measured(0.80), Measured(0.82), Measured(0.84)]  # mean 0.82, s 0.02
    found = band(Measured(0.8), seeds, stated_sigma=None)
    assert found is not None and found.half == pytest.approx(4.303 * 0.02 * (1 + 1 / 3) ** 0.5)
    assert student_t95(31) == pytest.approx(2.040, abs=0.005)
    assert student_t95(10_000) == pytest.approx(1.96, abs=0.001)


def test_a_stated_sigma_wins_and_intervals_serve_where_there_is_one_baseline() -> None:
    stated = band(Measured(0.8), [Measured(0.9)], stated_sigma=0.01)
    assert stated is not None and stated.half == pytest.approx(1.96 * 0.01 * 2**0.5)
    both = band(Measured(0.8, 0.77, 0.83), [Measured(0.9, 0.86, 0.94)], stated_sigma=None)
    assert both is not None and both.half == pytest.approx((0.03**2 + 0.04**2) ** 0.5)
    assert band(Measured(0.8), [Measured(0.9, 0.8, 1.0)], stated_sigma=None) is None


@pytest.mark.parametrize(
    ("gain", "tolerance", "half", "verdict"),
    [
        (0.0, 0.0, 0.1, Verdict.PASS),
        (-0.01, 0.02, 0.1, Verdict.PASS),
        (-0.05, 0.02, 0.1, Verdict.INVESTIGATE),
        (-0.2, 0.02, 0.1, Verdict.FAIL),
        (-0.2, 0.0, None, Verdict.INVESTIGATE),
        (0.2, 0.0, None, Verdict.PASS),
    ],
)
def test_worse_beyond_the_noise_fails_and_within_it_asks_for_a_look(
    gain: float, tolerance: float, half: float | None, verdict: Verdict
) -> None:
    noise = None if half is None else Band(half, "test")
    assert judge(gain, tolerance=tolerance, noise=noise) is verdict


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [(0.85, 0, "holds: eval/accuracy"), (0.81, 6, "INVESTIGATE"), (0.60, 6, "FAILS: eval/accuracy")],
)
def test_a_run_against_three_seeds(
    api: ScriptedApi, oolong: Oolong, value: float, code: int, said: str
) -> None:
    measured(api, eval_accuracy=value)
    for seed, theirs in enumerate((0.80, 0.82, 0.84)):
        measured(api, f"run_b{seed}", eval_accuracy=theirs)
    seeds = [word for seed in range(3) for word in ("--baseline", f"run:run_b{seed}")]
    done = oolong("run", "wait", "run_1", "--compare", "eval/accuracy", *seeds)
    assert done.returncode == code, done.stderr
    assert said in done.stderr and "spread of 3 baseline runs" in done.stderr
    borne = oolong("run", "wait", "run_1", "--compare", "eval/accuracy", *seeds, "--investigate", "pass")
    assert borne.returncode == (6 if said.startswith("FAILS") else 0)


def test_lower_may_be_better_and_a_file_is_a_baseline(
    api: ScriptedApi, oolong: Oolong, tmp_path: Path
) -> None:
    measured(api, eval_mean_tokens=900.0)
    measured(api, "run_b", eval_mean_tokens=500.0)
    made = oolong("run", "baseline", "run_b", "run_b", "--metric", "eval/mean_tokens", "-o", "base.json")
    assert made.returncode == 0, made.stderr
    assert json.loads((tmp_path / "base.json").read_text()) == {"eval/mean_tokens": [500.0, 500.0]}
    words = ("run", "wait", "run_1", "--baseline", "base.json", "--compare")
    assert oolong(*words, "eval/mean_tokens:lower").returncode == 6
    assert oolong(*words, "eval/mean_tokens:higher").returncode == 0
    missing = oolong(*words, "eval/accuracy")
    assert missing.returncode == 6 and "has no eval/accuracy" in missing.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--compare", "a"], "go together"),
        (["--baseline", "run:run_1"], "go together"),
        (["--compare", "a:sideways", "--baseline", "run:run_1"], "METRIC:lower"),
        (["--compare", "a", "--baseline", "nothing.json"], "is no baseline"),
        (["--compare", "a", "--baseline", "bad.json"], "a number, or a list"),
        (["--compare", "a", "--baseline", "run:run_9"], "run_9"),
        (["--investigate", "maybe"], "neither fail nor pass"),
        (["--junit", "bad.json/report.xml"], "bad.json/report.xml cannot be written"),
        (["--markdown", "."], ". cannot be written: name a file"),
    ],
)
def test_a_faulty_gate_is_refused_before_the_wait(
    api: ScriptedApi, oolong: Oolong, tmp_path: Path, words: list[str], said: str
) -> None:
    measured(api, eval_accuracy=0.8)
    (tmp_path / "bad.json").write_text('{"a": "high"}')
    done = oolong("run", "wait", "run_1", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_the_reports_tell_of_every_check(api: ScriptedApi, oolong: Oolong, tmp_path: Path) -> None:
    measured(api, eval_accuracy=0.81, reward_mean=[0.1, 0.9])
    api.script["GET runs/run_1"] = Answer(run("SUCCEEDED", name="a | b <c> \x00"))
    (tmp_path / "base.json").write_text('{"eval/accuracy": [0.80, 0.82, 0.84]}')
    done = oolong(
        "run", "wait", "run_1", "--assert", "min(reward/mean) > 0.5", "--assert", "reward/mean > 0.5", "--assert",
        "no/such > 1", "--compare", "eval/accuracy", "--baseline", "base.json", "--junit", "out/report.xml",
        "--markdown", "out/summary.md", "--json",
    )  # fmt: skip
    assert done.returncode == 6, done.stderr
    suites = xml.parse(tmp_path / "out" / "report.xml").getroot()
    (suite,) = suites
    counts = {"tests": "5", "failures": "2", "errors": "0", "skipped": "1"}
    assert {name: suite.get(name) for name in counts} == {name: suites.get(name) for name in counts} == counts
    kinds = [child.tag for child in suite]
    assert kinds == ["properties"] + ["testcase"] * 5
    properties = {found.get("name"): found.get("value") for found in suite[0]}
    assert properties["run_id"] == "run_1" and properties["run_url"] == f"{api.url}/runs/run_1"
    assert [[child.tag for child in case] for case in suite[1:]] == [
        ["system-out"], ["failure"], ["system-out"], ["failure"], ["skipped"],
    ]  # fmt: skip
    assert suite[4][0].get("message") == "no/such was not measured in this run"
    text = (tmp_path / "out" / "summary.md").read_text()
    assert text.startswith("## ❌ a \\| b <c>") and text.count("\n| ") == 7
    gate = json.loads(done.stdout)["gate"]
    assert gate["verdict"] == "fail" and [check["verdict"] for check in gate["checks"]] == [
        "pass", "fail", "pass", "fail", "investigate",
    ]  # fmt: skip


def test_a_timeout_is_in_the_report_too(api: ScriptedApi, oolong: Oolong, tmp_path: Path) -> None:
    api.script["GET runs/run_1"] = Answer(run("RUNNING"))
    assert oolong("run", "wait", "run_1", "--timeout", "0.1", "--junit", "report.xml").returncode == 3
    (failure,) = xml.parse(tmp_path / "report.xml").getroot().iter("failure")
    assert "is RUNNING after 0.1 s" in (failure.get("message") or "")


def test_a_run_that_failed_is_not_measured(api: ScriptedApi, oolong: Oolong) -> None:
    measured(api, status="FAILED", eval_accuracy=1.0)
    done = oolong("run", "wait", "run_1", "--assert", "eval/accuracy > 0")
    assert done.returncode == 5
    assert "GET runs/run_1/metrics" not in api.paths()


def test_an_interrupt_cancels_the_run_and_waits_for_its_end(api: ScriptedApi, tmp_path: Path) -> None:
    waiting, status = threading.Event(), ["RUNNING"]

    def show(asked: Asked) -> Answer:
        waiting.set()
        return Answer(run(status[0]))

    def cancel(asked: Asked) -> Answer:
        status[0] = "STOPPED"
        return Answer(run("STOPPING"), 202)

    api.script["GET runs/run_1"], api.script["POST runs/run_1/cancel"] = show, cancel
    process = subprocess.Popen(
        [sys.executable, "-m", "oolong.cli", "run", "wait", "run_1", "--cancel-on-interrupt"],
        env={
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
            "OOLONG_URL": api.url, "OOLONG_TOKEN": TOKEN,
        },
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert waiting.wait(60)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "POST runs/run_1/cancel" in api.paths()
    assert "STOPPED" in said


def test_a_key_that_has_another_spec_exits_2(api: ScriptedApi, oolong: Oolong) -> None:
    refusal = problem("dedupe_mismatch", "dedupe_key 'sha-1' is run run_7 with another spec")
    api.script["POST runs"] = [Answer(run(), 200), Answer(refusal, 409)]
    words = ("run", "create", "-f", "-", "--dedupe-key", "sha-1")
    assert oolong(*words, stdin="kind: rl\n").stdout.strip() == "run_1"
    assert json.loads(api.asked[0].body)["dedupe_key"] == "sha-1"
    refused = oolong(*words, stdin="kind: sft\n")
    assert refused.returncode == 2 and refused.stderr.count("run_7") == 1
