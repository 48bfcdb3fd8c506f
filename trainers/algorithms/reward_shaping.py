"""Changes to a batch before training: overlong penalty on rewards, truncated completions out of the loss mask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from oolong.contracts.rollout import Group, Trajectory, rollout_indices, rollouts_of
from oolong.contracts.run_spec import AlgorithmSection, OverlongSection


def apply_reward_shaping(
    groups: Sequence[Group], algorithm: AlgorithmSection, *, max_new_tokens: int
) -> list[Group]:
    """Return the groups with the overlong penalty added to rewards and, if configured, truncated completions masked.

    A masked trajectory keeps its reward, which still counts in its group's mean.
    """
    if algorithm.overlong is None and not algorithm.mask_truncated:
        return list(groups)
    return [_shape_group(group, algorithm, max_new_tokens=max_new_tokens) for group in groups]


def overlong_penalty(length: int, section: OverlongSection, *, max_new_tokens: int) -> float:
    """0 up to max_new_tokens - margin, then linear to -penalty at max_new_tokens (arXiv 2503.14476, eq. 13).

    `length` counts tokens that the policy sampled.
    """
    over = length - (max_new_tokens - section.margin_tokens)
    return -section.penalty * min(1.0, max(0.0, over / section.margin_tokens))


def rollout_penalty(
    trajectories: Iterable[Trajectory], section: OverlongSection, *, max_new_tokens: int
) -> float:
    """Return the penalty of the rollout's longest turn: `max_new_tokens` limits each turn, not their sum.

    All trajectories of a rollout share the penalty, as they share the reward.
    """
    longest = max(length for trajectory in trajectories for length in turn_lengths(trajectory))
    return overlong_penalty(longest, section, max_new_tokens=max_new_tokens)


def turn_lengths(trajectory: Trajectory) -> list[int]:
    """Tokens of each turn that the policy sampled. A trajectory without turns counts as one turn."""
    return [turn.tokens for turn in trajectory.turns if turn.sampled] or [sum(trajectory.loss_mask)]


def shaping_metrics(
    groups: Sequence[Group], algorithm: AlgorithmSection, *, max_new_tokens: int
) -> dict[str, float]:
    """Metrics by key, for the parts that are configured."""
    metrics = {}
    if algorithm.overlong is not None:
        penalties = [
            penalty
            for group in groups
            for penalty in _penalties(group, algorithm.overlong, max_new_tokens=max_new_tokens)
        ]
        metrics["response_length/overlong_frac"] = sum(penalty < 0 for penalty in penalties) / len(penalties)
        metrics["reward/overlong_penalty_mean"] = sum(penalties) / len(penalties)
    if algorithm.mask_truncated:
        trajectories = [one for group in groups for one in group.trajectories]
        metrics["response_length/masked_frac"] = sum(
            one.finish_reason == "length" for one in trajectories
        ) / len(trajectories)
    return metrics


def _shape_group(group: Group, algorithm: AlgorithmSection, *, max_new_tokens: int) -> Group:
    trajectories = list(group.trajectories)
    if algorithm.overlong is not None:
        penalties = _penalties(group, algorithm.overlong, max_new_tokens=max_new_tokens)
        trajectories = [
            one if one.reward is None else replace(one, reward=one.reward + penalties[rollout])
            for one, rollout in zip(trajectories, rollout_indices(group), strict=True)
        ]
    if algorithm.mask_truncated:
        trajectories = [
            replace(one, loss_mask=[0] * len(one.loss_mask)) if one.finish_reason == "length" else one
            for one in trajectories
        ]
    return replace(group, trajectories=trajectories)


def _penalties(group: Group, section: OverlongSection, *, max_new_tokens: int) -> list[float]:
    """One penalty per rollout."""
    return [
        rollout_penalty(rollout, section, max_new_tokens=max_new_tokens) for rollout in rollouts_of(group)
    ]
