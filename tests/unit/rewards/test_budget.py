"""When errors of the reward end a run."""

from __future__ import annotations

from gpu_agents.rewards.budget import ErrorBudget


def fed(budget: ErrorBudget, calls: str, *, seconds_apart: float = 0.1) -> ErrorBudget:
    """`.` a score, `x` an error."""
    for number, call in enumerate(calls):
        budget.note(error=call == "x", now=number * seconds_apart, message="because")
    return budget


def test_one_in_a_hundred_is_borne_and_more_is_not() -> None:
    assert not fed(ErrorBudget(0.01), ("." * 99 + "x") * 10).exceeded
    over = fed(ErrorBudget(0.01), ("." * 49 + "x") * 10).exceeded
    assert "5 of the last 250 completions got no score, more than reward.max_error_rate=0.01" in over
    assert "because" in over


def test_a_few_errors_at_the_start_are_not_a_share() -> None:
    assert not fed(ErrorBudget(0.01), "x.x.x.x").exceeded


def test_five_in_a_row_are_too_many_however_many_went_well() -> None:
    assert not fed(ErrorBudget(0.5), "." * 1000 + "xxxx.").exceeded
    assert fed(ErrorBudget(0.5), "." * 1000 + "xxxxx").exceeded.startswith("5 consecutive completions")


def test_errors_of_more_than_five_minutes_ago_are_forgotten() -> None:
    assert not fed(ErrorBudget(0.01), ("x" + "." * 9) * 40, seconds_apart=10.0).exceeded


def test_a_share_of_1_only_counts() -> None:
    assert not fed(ErrorBudget(1.0), "x" * 100).exceeded
