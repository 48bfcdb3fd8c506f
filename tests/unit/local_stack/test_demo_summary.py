"""The demo's summary matches the run's records, and its checks report what failed."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from local_stack.demo_progress import RunProgress, summary_text
from local_stack.demo_summary import failed_checks, reward_gain, summarize
from oolong.client import Client, models
from oolong.client.models import Run
from tests.support.scripted_api import TOKEN, Answer, ScriptedApi, page, run, shaped

LEDGER = {
    "drawn": 103, "trained": 80, "dropped_by_reason": {"error": 2, "run_end": 13}, "waiting": 1, "running": 3,
    "buffered": 2, "taken": 2,
}  # fmt: skip
RECORDS = {
    "trainer": {
        "train_steps": 21,
        "idle": {"trainer": 0.31},
        "weight_sync": {
            "trainer_blocked_frac": 0.011, "mean_seconds": {"gather": 0.012, "write": 0.013}, "versions": 22,
        },
        "engine_mismatch": {
            "tokens_compared": 1408, "versions_covered": 19, "mean_abs_logprob_diff": 1.5e-7, "max": 2.5e-6,
        },
    },
    "controller": {
        "ledger": LEDGER,
        "staleness": {
            "max_configured": 4, "mean": 1.25, "p95": 3, "max": 5, "exceeded_frac": 0.02, "histogram": {"1": 7},
        },
        "interruptions": 41,
        "trajectories_spanning_versions": 37,
        "acks": 43,
        "tokens": {"generated": 9000, "trained": 8000, "dropped": {"run_end": 900}, "lost_to_recovery": 100},
    },
    "evaluation": {
        "start": {"prompts": 256, "greedy": 0.91, "sampled": 0.42},
        "end": {"prompts": 256, "greedy": 0.93, "sampled": 0.88},
    },
    "rollout-0": {"idle": {"rollout": 0.2}, "engine_paused_frac": 0.01, "mean_seconds": {"load": 0.1, "paused": 0.2}},
    "rollout-1": {"idle": {"rollout": 0.4}, "engine_paused_frac": 0.03, "mean_seconds": {"load": 0.3, "paused": 0.4}},
}  # fmt: skip
BOOT = {
    "attempt_number": 1, "done": False,
    "stages": [
        {"name": "queue", "title": "Wait for slots", "state": "done", "detail": ""},
        {"name": "engine", "title": "Load the model into the engine", "state": "active", "detail": "4 s left"},
    ],
}  # fmt: skip
Summarize = Callable[[dict[str, Any], list[float]], dict[str, Any]]


@pytest.fixture
def summary_of() -> Summarize:
    """Build the summary of a run with these job records and stored rewards."""

    def make(records: dict[str, Any], rewards: list[float]) -> dict[str, Any]:
        points = {"x": list(range(1, len(rewards) + 1)), "value": rewards}
        series = shaped(models.Series, name="reward/mean", axis="step", source="trainer", attempt=1, **points)
        record = run("SUCCEEDED", policy_version=21, summary=records)
        script = {
            "GET runs/run_1": Answer(record),
            "GET runs/run_1/metrics": Answer({"series": [series], "seq": 1}),
            "GET checkpoints": Answer(page(stored(10, "STORED"), stored(20, "STORED"), stored(21, "LOCAL"))),
        }
        with ScriptedApi(script).serve() as api, Client(url=api.url, token=TOKEN) as client:
            return summarize(client, client.runs.get("run_1"), {"rl": 12.5, "total": 30.25})

    return make


def stored(step: int, state: str) -> dict[str, Any]:
    return shaped(
        models.Checkpoint, id=f"ckpt_{step}", step=step, sha256=f"{step:064x}", bytes=1000 + step, state=state
    )


RISING = [0.4 + 0.02 * step for step in range(21)]


def test_summary_matches_the_records(summary_of: Summarize) -> None:
    mean_of_first = pytest.approx(sum(RISING[:10]) / 10)
    mean_of_last = pytest.approx(sum(RISING[-10:]) / 10)
    assert summary_of(RECORDS, RISING) == {
        "run_id": "run_1",
        "status": "SUCCEEDED",
        "train_steps": 21,
        "policy_version": 21,
        "reward": {"first_10_steps_mean": mean_of_first, "last_10_steps_mean": mean_of_last},
        "eval": {
            "prompts": 256,
            "before": {"greedy": 0.91, "sampled": 0.42},
            "after": {"greedy": 0.93, "sampled": 0.88},
        },
        "staleness": RECORDS["controller"]["staleness"],
        "interruptions": 41,
        "trajectories_spanning_versions": 37,
        "ledger": LEDGER,
        "ledger_balances": True,
        "tokens": {"generated": 9000, "trained": 8000, "lost": 100, "dropped": {"run_end": 900}},
        "idle": {"trainer": 0.31, "rollout": pytest.approx(0.3)},
        "weight_sync": {
            "trainer_blocked_frac": 0.011,
            "engine_paused_frac": pytest.approx(0.02),
            "mean_seconds": {
                "gather": 0.012, "write": 0.013, "load": pytest.approx(0.2), "paused": pytest.approx(0.3),
            },
            "versions": 22,
            "acks": 43,
        },
        "engine_mismatch": RECORDS["trainer"]["engine_mismatch"],
        "checkpoint": {"id": "ckpt_20", "sha256": f"{20:064x}", "bytes": 1020},
        "seconds": {"rl": 12.5, "total": 30.25},
    }  # fmt: skip


def test_unmeasured_values_are_none_and_fail_the_demo(summary_of: Summarize) -> None:
    summary = summary_of({}, [])
    assert summary["reward"] == {"first_10_steps_mean": None, "last_10_steps_mean": None}
    assert summary["eval"] == {"prompts": None, "before": None, "after": None}
    assert summary["idle"] == {"trainer": None, "rollout": None}
    assert summary["interruptions"] is summary["engine_mismatch"] is summary["staleness"] is None
    assert not summary["ledger_balances"]
    assert len(failed_checks(summary)) == 4


def test_successful_run_passes_all_checks(summary_of: Summarize) -> None:
    summary = summary_of(RECORDS, RISING)
    assert reward_gain(summary) == pytest.approx(0.22)
    assert failed_checks(summary) == []


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("status",), "FAILED", "the run ended FAILED"),
        (("reward", "last_10_steps_mean"), 0.69, "the reward rose by 0.2"),
        (("reward", "last_10_steps_mean"), math.nan, "the reward rose by nan"),
        (("reward", "first_10_steps_mean"), None, "the reward rose by None"),
        (("trajectories_spanning_versions",), 0, "no trajectory spans"),
        (("engine_mismatch",), None, "over 0 tokens"),
        (("engine_mismatch", "tokens_compared"), 1000, "over 1000 tokens"),
        (("engine_mismatch", "max"), 1e-4, "differ by 0.0001"),
        (("engine_mismatch", "max"), math.nan, "differ by nan"),
        (("ledger_balances",), False, "does not balance"),
    ],
)
def test_each_failed_check_is_reported(
    summary_of: Summarize, path: tuple[str, ...], value: Any, named: str
) -> None:
    summary = copy.deepcopy(summary_of(RECORDS, RISING))
    *folders, last = path
    target = summary
    for folder in folders:
        target = target[folder]
    target[last] = value
    (found,) = failed_checks(summary)
    assert named in found


def test_lost_group_unbalances_the_ledger(summary_of: Summarize) -> None:
    lost = {**RECORDS, "controller": {**RECORDS["controller"], "ledger": {**LEDGER, "running": 2}}}
    assert not summary_of(lost, RISING)["ledger_balances"]


def test_summary_text_describes_this_run_and_claims_nothing_that_failed(
    summary_of: Summarize,
) -> None:
    summary = summary_of(RECORDS, RISING)
    text = summary_text(summary, passed=True)
    assert "1.250 versions old on average and 5 at most (configured maximum: 4)" in text
    assert "41 requests were interrupted" in text and "greedy accuracy from 0.910 to 0.930" in text
    assert "interrupted" not in summary_text(summary, passed=False)


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (
            run(progress={"phase": "boot", "done": 0, "total": 1, "message": "rollout-0"}, reward_mean=None,
                staleness_mean=None, boot=BOOT),
            "running  boot: load the model into the engine (4 s left)",
        ),
        (
            run(progress={"phase": "train", "done": 3, "total": 60, "message": ""}),
            "running  train 3/60 reward 0.50 ██████████░░░░░░░░░░  staleness 1.2",
        ),
        (run(status="QUEUED", pending_reason="needs 2 slots"), "queued  needs 2 slots"),
    ],
)  # fmt: skip
def test_without_a_terminal_a_line_says_what_the_run_does(shown: dict[str, Any], line: str) -> None:
    console = Console(file=io.StringIO(), width=200)
    client: Any = None
    RunProgress(client, "run_1", console).show(Run.model_validate(shown))
    assert console.file.getvalue() == f"  {line}\n"  # type: ignore[attr-defined]
