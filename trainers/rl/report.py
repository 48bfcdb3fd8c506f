"""What a batch says about itself: rewards and lengths. Pure functions over the groups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from oolong.contracts.rollout import Group


def batch_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Metrics of a batch, by catalogue name."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    rewards = [float(trajectory.reward or 0.0) for trajectory in trajectories]
    scores = [trajectory.score for trajectory in trajectories if trajectory.score is not None]
    lengths = [sum(trajectory.loss_mask) for trajectory in trajectories]
    tokens = sum(len(trajectory.token_ids) for trajectory in trajectories)
    turns = [
        sum(turn.sampled for turn in trajectory.turns) for trajectory in trajectories if trajectory.turns
    ]
    best, worst = max(rewards), min(rewards)
    mean = sum(rewards) / len(rewards)
    by_group = [[float(trajectory.reward or 0.0) for trajectory in group.trajectories] for group in groups]
    metrics = {
        "reward/mean": mean,
        "reward/std": math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / len(rewards)),
        "group/zero_variance_share": _share(len(set(values)) == 1 for values in by_group),
        "group/solved_all_share": _share(min(values) == best for values in by_group),
        "group/solved_none_share": _share(max(values) == worst for values in by_group),
        "length/response_mean": sum(lengths) / len(lengths),
        "length/response_max": float(max(lengths)),
        "length/truncated_share": _share(one.finish_reason == "length" for one in trajectories),
    }
    if turns:
        metrics |= {
            "workflow/turns_mean": sum(turns) / len(turns),
            "workflow/turns_max": float(max(turns)),
            "workflow/tool_calls_mean": sum(one.tool_calls for one in trajectories) / len(trajectories),
            "workflow/environment_tokens_share": 1 - sum(lengths) / tokens,
        }
    if scores:
        metrics["reward/score_mean"] = sum(scores) / len(scores)
    return metrics


def mean_staleness(groups: Sequence[Group], *, version: int) -> float:
    """For the log: mean of the version trained at minus the oldest version among a trajectory's tokens.

    The controller reports staleness in full.
    """
    lags = [
        version - min(trajectory.policy_versions)
        for group in groups
        for trajectory in group.trajectories
        if trajectory.policy_versions
    ]
    return sum(lags) / len(lags) if lags else 0.0


def _share(facts: Iterable[bool]) -> float:
    values = list(facts)
    return sum(values) / len(values)
