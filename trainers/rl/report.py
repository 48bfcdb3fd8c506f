"""What a batch says about itself: rewards, lengths, staleness. Pure functions over the groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from oolong.contracts.rollout import Group, Trajectory


def batch_metrics(groups: Sequence[Group], *, version: int, max_staleness: int) -> dict[str, float]:
    """Metrics of the batch trained at `version`, by catalogue name."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    rewards = [float(trajectory.reward or 0.0) for trajectory in trajectories]
    scores = [trajectory.score for trajectory in trajectories if trajectory.score is not None]
    lengths = [len(trajectory.token_ids) for trajectory in trajectories]
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
        **_staleness_metrics(trajectories, version=version, max_staleness=max_staleness),
    }
    if scores:
        metrics["reward/score_mean"] = sum(scores) / len(scores)
    return metrics


def staleness_histograms(groups: Sequence[Group], *, version: int) -> dict[str, dict[str, int]]:
    """Histogram name -> {staleness: count}, of trajectories and of tokens."""
    trajectories = [
        trajectory for group in groups for trajectory in group.trajectories if trajectory.token_ids
    ]
    return {
        "staleness/consumed_trajectories": _counts(
            version - min(one.policy_versions) for one in trajectories
        ),
        "staleness/consumed_tokens": _counts(
            version - made for one in trajectories for made in one.policy_versions
        ),
    }


def _staleness_metrics(
    trajectories: Sequence[Trajectory], *, version: int, max_staleness: int
) -> dict[str, float]:
    """Staleness of a trajectory: the version it is trained at minus the oldest among its tokens."""
    with_tokens = [trajectory for trajectory in trajectories if trajectory.token_ids]
    if not with_tokens:
        return {}
    staleness = sorted(version - min(trajectory.policy_versions) for trajectory in with_tokens)
    lags = [version - made for trajectory in with_tokens for made in trajectory.policy_versions]
    spans = [len(set(trajectory.policy_versions)) for trajectory in with_tokens]
    return {
        "staleness/mean": sum(staleness) / len(staleness),
        "staleness/max": float(staleness[-1]),
        "staleness/p95": float(staleness[math.ceil(0.95 * len(staleness)) - 1]),
        "staleness/token_mean": sum(lags) / len(lags),
        "staleness/over_bound_share": _share(one > max_staleness for one in staleness),
        "staleness/version_span_mean": sum(spans) / len(spans),
        "staleness/version_span_max": float(max(spans)),
        "staleness/interrupted_share": _share(one.interruptions > 0 for one in with_tokens),
    }


def _share(facts: object) -> float:
    values = [bool(fact) for fact in facts]  # type: ignore[attr-defined]
    return sum(values) / len(values)


def _counts(values: object) -> dict[str, int]:
    counted = Counter(values)  # type: ignore[call-overload]
    return {str(value): count for value, count in sorted(counted.items())}
