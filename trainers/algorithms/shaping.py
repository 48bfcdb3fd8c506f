"""What the algorithm makes of a batch before anything is computed from it: rewards and loss masks of its groups."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from oolong.contracts.rollout import Group, Trajectory
from oolong.contracts.run_spec import AlgorithmSection, OverlongSection


def shaped(groups: Sequence[Group], algorithm: AlgorithmSection, *, max_new_tokens: int) -> list[Group]:
    """The groups with the overlong penalty in their rewards and, if asked for, truncated completions out of the loss.

    A masked trajectory keeps its reward: it was sampled, so it counts in its group's mean.
    """
    if algorithm.overlong is None and not algorithm.mask_truncated:
        return list(groups)
    return [
        replace(group, trajectories=[_shaped(one, algorithm, max_new_tokens) for one in group.trajectories])
        for group in groups
    ]


def overlong_penalty(length: int, section: OverlongSection, *, max_new_tokens: int) -> float:
    """0 up to max_new_tokens - margin, then linear to -penalty at max_new_tokens (arXiv 2503.14476, eq. 13).

    The length is in tokens that the policy sampled.
    """
    over = length - (max_new_tokens - section.margin_tokens)
    return -section.penalty * min(1.0, max(0.0, over / section.margin_tokens))


def shaping_metrics(
    groups: Sequence[Group], algorithm: AlgorithmSection, *, max_new_tokens: int
) -> dict[str, float]:
    """By catalogue name, of what was switched on."""
    trajectories = [one for group in groups for one in group.trajectories]
    metrics = {}
    if algorithm.overlong is not None:
        penalties = [
            overlong_penalty(sum(one.loss_mask), algorithm.overlong, max_new_tokens=max_new_tokens)
            for one in trajectories
        ]
        metrics["length/overlong_share"] = sum(penalty < 0 for penalty in penalties) / len(penalties)
        metrics["reward/overlong_penalty_mean"] = sum(penalties) / len(penalties)
    if algorithm.mask_truncated:
        metrics["length/masked_share"] = sum(one.finish_reason == "length" for one in trajectories) / len(
            trajectories
        )
    return metrics


def _shaped(trajectory: Trajectory, algorithm: AlgorithmSection, max_new_tokens: int) -> Trajectory:
    if algorithm.overlong is not None and trajectory.reward is not None:
        penalty = overlong_penalty(
            sum(trajectory.loss_mask), algorithm.overlong, max_new_tokens=max_new_tokens
        )
        trajectory = replace(trajectory, reward=trajectory.reward + penalty)
    if algorithm.mask_truncated and trajectory.finish_reason == "length":
        trajectory = replace(trajectory, loss_mask=[0] * len(trajectory.loss_mask))
    return trajectory
