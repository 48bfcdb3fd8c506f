"""Advantages of a batch from its rewards: two orthogonal choices, what is subtracted and what it is divided by.

group, group: group-relative advantages (arXiv 2402.03300). group, none: without its difficulty bias
(arXiv 2503.20783); with leave-one-out, RLOO (arXiv 2402.14740). group, batch: LitePPO (arXiv 2508.08221).
none, none: the rewards. All are over rollouts, each of which has one reward however many trajectories it leaves;
advantages per token are in `gae`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch

Level = Literal["batch", "group", "none"]
StdOf = Literal["population", "sample"]
Rewards = list[torch.Tensor]  # per group, float64 [G]; groups may differ in G


def _batch_mean(rewards: Rewards) -> Rewards:
    return [torch.cat(rewards).mean().expand_as(group) for group in rewards]


def _group_mean(rewards: Rewards) -> Rewards:
    return [group.mean().expand_as(group) for group in rewards]


def _no_mean(rewards: Rewards) -> Rewards:
    return [torch.zeros_like(group) for group in rewards]


def _batch_std(rewards: Rewards, correction: int) -> Rewards:
    return [_std(torch.cat(rewards), correction).expand_as(group) for group in rewards]


def _group_std(rewards: Rewards, correction: int) -> Rewards:
    return [_std(group, correction).expand_as(group) for group in rewards]


def _std(values: torch.Tensor, correction: int) -> torch.Tensor:
    """0 of a single value, whatever the correction."""
    return values.std(correction=min(correction, len(values) - 1))


MEANS: dict[Level, Callable[[Rewards], Rewards]] = {
    "batch": _batch_mean,
    "group": _group_mean,
    "none": _no_mean,
}
STDS: dict[Level, Callable[[Rewards, int], Rewards] | None] = {
    "batch": _batch_std,
    "group": _group_std,
    "none": None,
}


def advantages(
    rewards: Sequence[Sequence[float]],
    *,
    mean: Level,
    std: Level,
    epsilon: float,
    std_of: StdOf = "population",
    leave_one_out: bool = False,
) -> list[list[float]]:
    """One advantage per rollout, (reward - mean) / (std + epsilon), in the shape of `rewards`.

    std divides by the count (`population`) or by one less (`sample`). Under `leave_one_out` the mean is of the other
    rollouts of the group. Where all rewards of a group are equal, an advantage against the group's mean is exactly 0,
    so that a group that teaches nothing is seen to teach nothing.
    """
    groups = [torch.tensor(group, dtype=torch.float64) for group in rewards]
    centred = [
        torch.zeros_like(group) if mean == "group" and bool((group == group[0]).all()) else group - centre
        for group, centre in zip(groups, MEANS[mean](groups), strict=True)
    ]
    if leave_one_out:  # r - (sum - r) / (G - 1) = (r - mean) G / (G - 1)
        centred = [value * len(value) / max(1, len(value) - 1) for value in centred]
    spread = STDS[std]
    if spread is not None:
        centred = [
            value / (deviation + epsilon)
            for value, deviation in zip(centred, spread(groups, int(std_of == "sample")), strict=True)
        ]
    return [value.tolist() for value in centred]
