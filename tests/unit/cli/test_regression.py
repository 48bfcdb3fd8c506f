"""Regression checks of a run that has ended: assertions, comparisons within a noise band, reports."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import msgspec
import pytest

from oolong.cli.regression.noise import (
    Bounds,
    Measured,
    NoiseBand,
    evaluate,
    noise_band,
    normal_quantile,
    pair,
    student_quantile,
)
from oolong.cli.regression.results import RegressionResult
from oolong.client import models
from oolong.contracts.assertions import parse
from oolong.contracts.evaluation import PROMPT_SCORES, PromptScores, prompt_keys
from tests.support.scripted_api import TOKEN, Answer, Asked, ScriptedApi, page, problem, run, shaped
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
        page(*(shaped(models.MetricName, name=name, axis="step", last_x=len(values))
               for name, values in points.items()))
    )  # fmt: skip

    def series(asked: Asked) -> Answer:
        name, after = asked.query["names"], int(asked.query.get("after_x", -1))
        to = int(asked.query.get("to_x", 10**9))
        kept = [(x, value) for x, value in enumerate(points[name], start=1) if after < x <= to]
        shown = shaped(
            models.Series, name=name, axis="step", source="trainer", attempt=1,
            x=[x for x, _ in kept], value=[value for _, value in kept],
        )  # fmt: skip
        return Answer({"series": [shown], "seq": 1})

    api.script[f"GET runs/{run_id}/metrics"] = series
    api.script[f"GET runs/{run_id}/state"] = Answer({"data": []})


def evaluated(api: ScriptedApi, run_id: str, scores: list[float], *, prompts: range | None = None) -> None:
    """A run that has ended, whose evaluation gave these scores to its prompts, in the shape of the node's document."""
    mean = sum(scores) / len(scores)
    measured(api, run_id, eval_accuracy=mean, eval_sampled=mean)
    keys = prompt_keys((f"prompt {number}", "") for number in prompts or range(len(scores)))
    document = PromptScores(
        label="end", version=1, success_score=1.0, samples=1, prompts=keys, right=scores, sampled=scores
    )
    shown = {"name": PROMPT_SCORES, "at": 1.0, "value": msgspec.to_builtins(document)}
    api.script[f"GET runs/{run_id}/state"] = Answer({"data": [shown]})


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
def test_assertion_reads_the_last_point_or_a_window(text: str, values: list[float], holds: bool) -> None:
    assertion = parse(text)
    assert assertion.holds(assertion.of(values)) is holds
    assert parse(str(assertion)) == assertion, "text and assertion round-trip"


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
def test_invalid_assertion_is_rejected_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="assertion") as refused:
        parse(text)
    assert text in str(refused.value)


def test_quantiles_match_the_tables() -> None:
    for confidence, degrees, value in (
        (0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 31, 2.0395), (0.99, 5, 3.365), (0.95, 10, 1.812),
        (0.99, 63, 2.387), (0.975, 4000, 1.9606),
    ):  # fmt: skip
        assert student_quantile(confidence, degrees) == pytest.approx(value, abs=6e-4)
    assert normal_quantile(0.99) == pytest.approx(2.326, abs=1e-3)


def test_noise_band_of_seeds_is_students_t_for_a_new_observation() -> None:
    seeds = [Measured(0.80), Measured(0.82), Measured(0.84)]  # mean 0.82, s 0.02
    found = noise_band(Measured(0.8), seeds, Bounds(confidence=0.975))
    assert found is not None and found.half == pytest.approx(4.3027 * 0.02 * (1 + 1 / 3) ** 0.5, abs=1e-5)


def test_stated_sigma_takes_precedence_and_one_baseline_uses_intervals() -> None:
    bounds = Bounds(confidence=0.975)
    stated = noise_band(Measured(0.8), [Measured(0.9)], Bounds(confidence=0.975, sigma=0.01))
    assert stated is not None and stated.half == pytest.approx(1.96 * 0.01 * 2**0.5, rel=1e-4)
    both = noise_band(Measured(0.8, 0.77, 0.83), [Measured(0.9, 0.86, 0.94)], bounds)
    assert both is not None and both.half == pytest.approx((0.03**2 + 0.04**2) ** 0.5, rel=1e-4)
    assert noise_band(Measured(0.8), [Measured(0.9, 0.8, 1.0)], bounds) is None


def test_shared_prompts_are_paired_and_a_prompt_counts_once() -> None:
    """Prompts differ in difficulty by far more than the two models do; pairing removes that."""
    baseline = {f"p{number}": number / 20 for number in range(20)}
    candidate = {key: value - (0.05 if key != "p3" else 0.01) for key, value in baseline.items()}
    found = pair(candidate | {"only mine": 1.0}, baseline | {"only theirs": 0.0})
    assert (found.prompts, found.left_out) == (20, 2)
    assert found.gain == pytest.approx(-0.048)
    assert found.error == pytest.approx(0.04 * (1 / 20) ** 0.5 / 20**0.5)  # one difference of 20 is 0.04 away
    noise = noise_band(Measured(0.4), [Measured(0.45, 0.3, 0.6)], Bounds(), paired=found)
    assert noise is not None and "paired over 20 prompts" in noise.source
    assert evaluate(found.gain, Bounds(), noise) is RegressionResult.FAIL


def test_false_failures_match_the_confidence_and_a_regression_is_found() -> None:
    """avg@4 of 128 prompts of very different difficulty, both sides sampled; 1000 comparisons of each kind."""
    chance = random.Random(7)

    def failures(drop: float, confidence: float) -> int:
        bounds, failed = Bounds(confidence=confidence), 0
        for _ in range(1000):
            ease = [chance.random() for _ in range(128)]
            before, after = (
                {
                    str(n): sum(chance.random() < rate - less for _ in range(4)) / 4
                    for n, rate in enumerate(ease)
                }
                for less in (0.0, drop)
            )
            found = pair(after, before)
            failed += (
                evaluate(found.gain, bounds, noise_band(Measured(0), [Measured(0)], bounds, paired=found))
                is RegressionResult.FAIL
            )
        return failed

    assert 30 <= failures(0.0, 0.95) <= 72  # 50 expected, three standard deviations
    assert 2 <= failures(0.0, 0.99) <= 20
    assert failures(0.12, 0.99) >= 950, "a regression of 12 points is found"


@pytest.mark.parametrize(
    ("gain", "bounds", "half", "result"),
    [
        (0.0, Bounds(), 0.1, RegressionResult.PASS),
        (-0.05, Bounds(), 0.1, RegressionResult.PASS),
        (-0.11, Bounds(), 0.1, RegressionResult.FAIL),
        (-0.11, Bounds(tolerance=0.02), 0.1, RegressionResult.PASS),
        (-0.13, Bounds(tolerance=0.02), 0.1, RegressionResult.FAIL),
        (-0.05, Bounds(detect=0.05), 0.1, RegressionResult.INVESTIGATE),
        (-0.2, Bounds(detect=0.05), 0.1, RegressionResult.FAIL),
        (0.2, Bounds(detect=0.05), 0.1, RegressionResult.PASS),
        (-0.2, Bounds(), None, RegressionResult.INVESTIGATE),
        (-0.2, Bounds(tolerance=0.3), None, RegressionResult.PASS),
        (0.2, Bounds(), None, RegressionResult.PASS),
    ],
)
def test_worse_beyond_noise_fails_and_undecided_is_investigate(
    gain: float, bounds: Bounds, half: float | None, result: RegressionResult
) -> None:
    assert evaluate(gain, bounds, None if half is None else NoiseBand(half, "test")) is result


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [(0.85, 0, "holds: eval/accuracy"), (0.81, 0, "holds"), (0.60, 6, "FAILS: eval/accuracy")],
)
def test_run_is_compared_with_three_seeds(
    api: ScriptedApi, oolong: Oolong, value: float, code: int, said: str
) -> None:
    measured(api, eval_accuracy=value)
    for seed, theirs in enumerate((0.80, 0.82, 0.84)):
        measured(api, f"run_b{seed}", eval_accuracy=theirs)
    seeds = [word for seed in range(3) for word in ("--baseline", f"run:run_b{seed}")]
    done = oolong("run", "wait", "run_1", "--compare", "eval/accuracy", *seeds)
    assert done.returncode == code, done.stderr
    assert said in done.stderr and "spread of 3 baseline runs" in done.stderr
    assert (
        oolong("run", "wait", "run_1", "--compare", "eval/accuracy", *seeds, "--tolerance", "1").returncode
        == 0
    )


COMPARED = ("run", "wait", "run_1", "--compare", "eval/accuracy", "--baseline", "run:run_b")


def test_one_baseline_run_is_paired_prompt_by_prompt(api: ScriptedApi, oolong: Oolong) -> None:
    easy = [1.0] * 40 + [0.0] * 24
    evaluated(api, "run_b", easy)
    evaluated(api, "run_1", [*easy[:-1], 1.0])
    done = oolong(*COMPARED)
    assert done.returncode == 0 and "paired over 64 prompts" in done.stderr
    evaluated(api, "run_1", [0.0, *easy[1:]])
    assert oolong(*COMPARED).returncode == 0, "one prompt of 64 is noise"
    evaluated(api, "run_1", [0.0] * 10 + easy[10:])
    assert oolong(*COMPARED).returncode == 6
    assert oolong(*COMPARED, "--tolerance", "0.2").returncode == 0
    undecided = oolong(*COMPARED, "--tolerance", "0.1", "--detect", "0.01")
    assert undecided.returncode == 6 and "more than --detect 0.01: evaluate more prompts" in undecided.stderr
    borne = oolong(*COMPARED, "--tolerance", "0.1", "--detect", "0.01", "--investigate", "pass")
    assert borne.returncode == 0


def test_unpaired_comparison_states_the_reason(api: ScriptedApi, oolong: Oolong) -> None:
    scores = [1.0] * 40 + [0.0] * 24
    evaluated(api, "run_b", scores)
    evaluated(api, "run_1", scores, prompts=range(60, 124))
    done = oolong(*COMPARED)
    assert "not paired: the evaluations share 4 of 64 and 64 prompts" in done.stderr
    evaluated(api, "run_1", scores, prompts=range(10, 74))
    assert "20 prompts are in one of the two evaluations only" in oolong(*COMPARED).stderr
    evaluated(api, "run_1", scores)
    documents = api.script["GET runs/run_1/state"]
    measured(api, eval_accuracy=0.3)
    assert "run run_1 has no scores by prompt" in oolong(*COMPARED).stderr
    api.script["GET runs/run_1/state"] = documents
    done = oolong(*COMPARED)
    assert done.returncode == 6 and "are of another evaluation than its eval/accuracy" in done.stderr


def test_alias_baseline_uses_the_step_of_its_checkpoint(api: ScriptedApi, oolong: Oolong) -> None:
    """Later steps of the run do not count."""
    measured(api, eval_accuracy=0.8)
    measured(api, "run_b", eval_accuracy=[0.7, 0.9])
    checkpoint = shaped(models.Checkpoint, id="ckpt_1", run={"id": "run_b", "name": "b"})
    words = ("run", "wait", "run_1", "--compare", "eval/accuracy", "--baseline", "alias:prod")
    for step, code, said in ((1, 0, "0.8 against 0.7"), (2, 6, "0.8 against 0.9"), (3, 6, "at step 3")):
        api.script["GET checkpoints/resolve"] = Answer(checkpoint | {"step": step})
        done = oolong(*words)
        assert done.returncode == code and said in done.stderr, done.stderr


def test_lower_is_better_and_a_file_is_a_baseline(api: ScriptedApi, oolong: Oolong, tmp_path: Path) -> None:
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
def test_invalid_options_are_rejected_before_the_wait(
    api: ScriptedApi, oolong: Oolong, tmp_path: Path, words: list[str], said: str
) -> None:
    measured(api, eval_accuracy=0.8)
    (tmp_path / "bad.json").write_text('{"a": "high"}')
    done = oolong("run", "wait", "run_1", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_reports_contain_every_check(api: ScriptedApi, oolong: Oolong, tmp_path: Path) -> None:
    measured(api, eval_accuracy=0.81, reward_mean=[0.1, 0.9])
    api.script["GET runs/run_1"] = Answer(run("SUCCEEDED", name="a | b <c> \x00"))
    (tmp_path / "base.json").write_text('{"eval/accuracy": [0.82]}')
    done = oolong(
        "run", "wait", "run_1", "--assert", "min(reward/mean) > 0.5", "--assert", "reward/mean > 0.5", "--assert",
        "sft/loss > 1", "--compare", "eval/accuracy", "--baseline", "base.json", "--junit", "out/report.xml",
        "--markdown", "out/summary.md", "--json",
    )  # fmt: skip
    assert done.returncode == 6, done.stderr
    suites = xml.parse(tmp_path / "out" / "report.xml").getroot()
    (suite,) = suites
    counts = {"tests": "5", "failures": "3", "errors": "0", "skipped": "0"}
    assert {name: suite.get(name) for name in counts} == {name: suites.get(name) for name in counts} == counts
    kinds = [child.tag for child in suite]
    assert kinds == ["properties"] + ["testcase"] * 5
    properties = {found.get("name"): found.get("value") for found in suite[0]}
    assert properties["run_id"] == "run_1" and properties["run_url"] == f"{api.url}/runs/run_1"
    assert [[child.tag for child in case] for case in suite[1:]] == [
        ["system-out"], ["failure"], ["system-out"], ["failure"], ["failure"],
    ]  # fmt: skip
    assert suite[4][0].get("message") == "sft/loss was not measured in this run"
    text = (tmp_path / "out" / "summary.md").read_text()
    assert text.startswith("## ❌ a \\| b <c>") and text.count("\n| ") == 7
    regression = json.loads(done.stdout)["regression"]
    assert regression["result"] == "fail" and [check["result"] for check in regression["checks"]] == [
        "pass", "fail", "pass", "fail", "investigate",
    ]  # fmt: skip


def outcome(report: Path) -> tuple[int, int]:
    """Failures and errors of a JUnit file; its counts must be those of its cases."""
    root = xml.parse(report).getroot()
    found = len(list(root.iter("failure"))), len(list(root.iter("error")))
    assert (root.get("failures"), root.get("errors")) == tuple(map(str, found))
    return found


def test_report_and_exit_code_agree_on_an_undecided_comparison(
    api: ScriptedApi, oolong: Oolong, tmp_path: Path
) -> None:
    measured(api, eval_accuracy=0.8)
    (tmp_path / "base.json").write_text('{"eval/accuracy": 0.9}')
    words = (
        "run",
        "wait",
        "run_1",
        "--compare",
        "eval/accuracy",
        "--baseline",
        "base.json",
        "--junit",
        "r.xml",
    )
    assert oolong(*words).returncode == 6 and outcome(tmp_path / "r.xml") == (1, 0)
    assert oolong(*words, "--investigate", "pass").returncode == 0 and outcome(tmp_path / "r.xml") == (0, 0)
    assert "investigate: 0.8 against 0.9" in (tmp_path / "r.xml").read_text()


def test_timeout_is_reported_as_error(api: ScriptedApi, oolong: Oolong, tmp_path: Path) -> None:
    api.script["GET runs/run_1"] = Answer(run("RUNNING"))
    assert oolong("run", "wait", "run_1", "--timeout", "0.1", "--junit", "report.xml").returncode == 3
    assert outcome(tmp_path / "report.xml") == (0, 1)
    assert "is RUNNING after 0.1 s" in (tmp_path / "report.xml").read_text()


@pytest.mark.parametrize(
    ("status", "more", "code", "found"),
    [
        ("FAILED", {"fault": "user"}, 5, (1, 0)),
        ("FAILED", {"fault": "infra"}, 8, (0, 1)),
        ("STOPPED", {}, 7, (0, 1)),
    ],
)
def test_unfinished_run_is_an_error_and_failed_run_a_failure(
    api: ScriptedApi, oolong: Oolong, tmp_path: Path, status: str, more: dict[str, str], code: int, found: Any
) -> None:
    api.script["GET runs/run_1"] = Answer(run(status, **more))
    assert oolong("run", "wait", "run_1", "--junit", "report.xml").returncode == code
    assert outcome(tmp_path / "report.xml") == found


def test_missing_run_is_reported_as_error(api: ScriptedApi, oolong: Oolong, tmp_path: Path) -> None:
    assert oolong("run", "wait", "run_9", "--junit", "report.xml").returncode == 2
    assert outcome(tmp_path / "report.xml") == (0, 1)


def test_failed_run_is_not_checked(api: ScriptedApi, oolong: Oolong) -> None:
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
        [sys.executable, "-m", "oolong.cli", "run", "wait", "run_1", "--cancel-on-interrupt", "--junit", "r.xml"],
        cwd=tmp_path, env={
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
    assert outcome(tmp_path / "r.xml") == (0, 1) and "cancelled: STOPPED" in (tmp_path / "r.xml").read_text()


def test_a_key_that_has_another_spec_exits_2(api: ScriptedApi, oolong: Oolong) -> None:
    refusal = problem("dedupe_mismatch", "dedupe_key 'sha-1' is run run_7 with another spec")
    api.script["POST runs"] = [Answer(run(), 200), Answer(refusal, 409)]
    words = ("run", "create", "-f", "-", "--dedupe-key", "sha-1")
    assert oolong(*words, stdin="kind: rl\n").stdout.strip() == "run_1"
    assert json.loads(api.asked[0].body)["dedupe_key"] == "sha-1"
    refused = oolong(*words, stdin="kind: sft\n")
    assert refused.returncode == 2 and refused.stderr.count("run_7") == 1
