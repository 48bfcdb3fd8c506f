"""Dynamic filtering: which finished groups carry no signal worth a train step (DAPO, arXiv 2503.14476, section 3.2).

A filtered group leaves at its submit as dropped{filtered}, in groups and in tokens, and its place in the gate is free
at that moment: the batch is refilled by the next draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from oolong.contracts.rollout import Group, rollouts_of


@dataclass(frozen=True, kw_only=True)
class FilterConfig:
    kind: Literal["none", "zero_variance", "success_rate"] = "none"
    low: float = 0.0  # kept: low < success rate < high
    high: float = 1.0
    success_score: float = 1.0  # a member succeeds with this score or more
    max_in_a_row: int = 512


def is_filtered(rules: FilterConfig, group: Group) -> bool:
    """`zero_variance`: all rewards are equal. `success_rate`: the share of successful members is out of bounds."""
    if rules.kind == "zero_variance":
        return len({trajectory.reward for trajectory in group.trajectories}) == 1
    if rules.kind == "success_rate":
        return not rules.low < success_rate(group, success_score=rules.success_score) < rules.high
    return False


def success_rate(group: Group, *, success_score: float) -> float:
    """By the reward function's own value, before scale and bias. A rollout counts once, whatever it leaves."""
    scores = [trajectories[0].score for trajectories in rollouts_of(group)]
    successes = sum((score if score is not None else 0.0) >= success_score for score in scores)
    return successes / len(scores)


@dataclass(kw_only=True)
class FilterCounts:
    """Groups that came to the filter, since the last train step and in a row."""

    finished: int = 0
    filtered: int = 0
    in_a_row: int = 0
    finished_before: int = 0  # at the last announced version
    filtered_before: int = 0

    def count(self, *, filtered: bool) -> None:
        self.finished += 1
        self.filtered += filtered
        self.in_a_row = self.in_a_row + 1 if filtered else 0

    def share_since_last_step(self) -> float | None:
        """Of the groups finished since the last call; None when there was none."""
        finished = self.finished - self.finished_before
        filtered = self.filtered - self.filtered_before
        self.finished_before, self.filtered_before = self.finished, self.filtered
        return filtered / finished if finished else None
