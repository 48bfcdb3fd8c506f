"""Dynamic filtering: which finished groups carry no signal worth a train step (DAPO, arXiv 2503.14476, section 3.2).

A filtered group is dropped at its submit as dropped{filtered}, in groups and in tokens. Its gate capacity is free from
then on, so the next prompt refills the batch.
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
    success_score: float = 1.0  # a rollout succeeds with this score or more
    max_consecutive: int = 512


def is_filtered(config: FilterConfig, group: Group) -> bool:
    """`zero_variance`: all rewards are equal. `success_rate`: the fraction of successful rollouts is out of bounds."""
    if config.kind == "zero_variance":
        return len({trajectory.reward for trajectory in group.trajectories}) == 1
    if config.kind == "success_rate":
        return not config.low < success_rate(group, success_score=config.success_score) < config.high
    return False


def success_rate(group: Group, *, success_score: float) -> float:
    """By the reward function's own value, before scale and bias. A rollout counts once, however many trajectories."""
    scores = [trajectories[0].score for trajectories in rollouts_of(group)]
    successes = sum((score if score is not None else 0.0) >= success_score for score in scores)
    return successes / len(scores)


@dataclass(kw_only=True)
class FilterCounts:
    """Finished and filtered groups: in total, in a row, and since the last train step."""

    finished: int = 0
    filtered: int = 0
    in_a_row: int = 0
    finished_before: int = 0  # at the last announced version
    filtered_before: int = 0

    def count(self, *, filtered: bool) -> None:
        self.finished += 1
        self.filtered += filtered
        self.in_a_row = self.in_a_row + 1 if filtered else 0

    def fraction_since_last_step(self) -> float | None:
        """Filtered over finished groups since the last call; None if no group finished."""
        finished = self.finished - self.finished_before
        filtered = self.filtered - self.filtered_before
        self.finished_before, self.filtered_before = self.finished, self.filtered
        return filtered / finished if finished else None
