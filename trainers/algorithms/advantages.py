"""Advantages per rollout: (reward - mean) / std, with the level of mean and std chosen independently.

mean, std = group, group: GRPO (arXiv 2402.03300). group, none: Dr. GRPO, without the difficulty bias
(arXiv 2503.20783); with leave-one-out, RLOO (arXiv 2402.14740). group, batch: LitePPO (arXiv 2508.08221).
none, none: the rewards. A rollout has one reward, however many trajectories it consists of. `gae` computes advantages
per token.
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
    """The standard deviation; 0 for a single value, whatever the correction."""
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


def rollout_advantages(
    rewards: Sequence[Sequence[float]],
    *,
    mean: Level,
    std: Level,
    epsilon: float,
    std_of: StdOf = "population",
    leave_one_out: bool = False,
) -> list[list[float]]:
    """Return (reward - mean) / (std + epsilon) of each rollout, in the shape of `rewards` [groups][rollouts].

    `std_of`: the variance divides by the count (`population`) or by the count minus one (`sample`). With
    `leave_one_out` the mean is over the other rollouts of the group. Where all rewards of a group are equal, advantages
    against the group's mean are exactly 0, so that zero-advantage groups are detected despite rounding.
    """
    groups = [torch.tensor(group, dtype=torch.float64) for group in rewards]
    centered = [
        torch.zeros_like(group) if mean == "group" and bool((group == group[0]).all()) else group - center
        for group, center in zip(groups, MEANS[mean](groups), strict=True)
    ]
    if leave_one_out:  # r - (sum - r) / (G - 1) = (r - mean) G / (G - 1)
        centered = [value * len(value) / max(1, len(value) - 1) for value in centered]
    spread = STDS[std]
    if spread is not None:
        centered = [
            value / (deviation + epsilon)
            for value, deviation in zip(centered, spread(groups, int(std_of == "sample")), strict=True)
        ]
    return [value.tolist() for value in centered]
