"""The rules of retention, each alone and together, on plain data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from control_plane.checkpoints.retention import Candidate, Policy, evaluate

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def candidate(step: int, *, run: str = "run_a", days: float = 0, **changes: Any) -> Candidate:
    given = {"final": False, "bytes": 10, "metrics": {}, **changes}
    return Candidate(id=f"{run}-{step}", run_id=run, step=step, stored_at=NOW - timedelta(days=days), **given)


def freed(candidates: list[Candidate], **rules: Any) -> set[str]:
    return {decision.id for decision in evaluate(candidates, Policy(**rules), now=NOW) if decision.deletable}


STEPS = [candidate(step) for step in (10, 20, 30, 40)]


@pytest.mark.parametrize(
    ("rules", "gone"),
    [
        ({}, set()),
        ({"keep_last": 1}, {"run_a-10", "run_a-20", "run_a-30"}),
        ({"keep_last": 9}, set()),
        ({"every_steps": 20}, {"run_a-10", "run_a-30"}),
        ({"keep_last": 1, "every_steps": 30}, {"run_a-10", "run_a-20"}),
    ],
)
def test_rules_add_up_and_no_rule_frees_nothing(rules: dict[str, Any], gone: set[str]) -> None:
    assert freed(STEPS, **rules) == gone


def test_the_newest_are_counted_in_each_run_alone_and_the_final_one_is_the_newest() -> None:
    other = [candidate(5, run="run_b"), candidate(6, run="run_b", final=True), candidate(7, run="run_b")]
    assert freed(STEPS[:2] + other, keep_last=1) == {"run_a-10", "run_b-5", "run_b-7"}


@pytest.mark.parametrize(("mode", "kept"), [("max", {"run_a-30"}), ("min", {"run_a-10"})])
def test_the_best_is_by_the_metric_and_one_without_a_value_is_never_best(mode: Any, kept: set[str]) -> None:
    values = {10: 0.1, 20: 0.5, 30: 0.9, 40: None}
    scored = [candidate(step, metrics={"reward_mean": value}) for step, value in values.items()]
    everything = {found.id for found in scored}
    assert freed(scored, best_metric="reward_mean", best_mode=mode) == everything - kept
    assert freed(scored, best_metric="accuracy") == everything


def test_of_equally_good_ones_the_later_step_stays() -> None:
    same = [candidate(step, metrics={"m": 1.0}) for step in (1, 2, 3)]
    assert freed(same, best_metric="m", best_count=2) == {"run_a-1"}


def test_a_young_one_stays_until_its_time() -> None:
    aged = [candidate(1, days=6.9), candidate(2, days=7.1)]
    assert freed(aged, ttl_days=7) == {"run_a-2"}


def test_what_somebody_needs_stays_whatever_the_rules_say_and_tells_why() -> None:
    needed = candidate(1, days=99, needed=("alias prod", "run x starts from it"))
    decisions = evaluate([needed, candidate(2)], Policy(keep_last=1), now=NOW)
    assert decisions[0].keep_reasons == ("alias prod", "run x starts from it")
    assert decisions[1].keep_reasons == ("last 1 of its run",)
