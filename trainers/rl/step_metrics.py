"""Metrics of a train step: rewards and lengths of its groups, time per phase, memory."""

from __future__ import annotations

import math
import resource
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import torch

from oolong.contracts.rollout import Group, rollouts_of


def batch_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Metrics of a batch by key. Rewards are per rollout, lengths per trajectory."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    by_group = [[float(one[0].reward or 0.0) for one in rollouts_of(group)] for group in groups]
    rewards = [reward for rewards_of_group in by_group for reward in rewards_of_group]
    scores = [one[0].score for group in groups for one in rollouts_of(group) if one[0].score is not None]
    lengths = [sum(trajectory.loss_mask) for trajectory in trajectories]
    tokens = sum(len(trajectory.token_ids) for trajectory in trajectories)
    turns = [
        sum(turn.sampled for turn in trajectory.turns) for trajectory in trajectories if trajectory.turns
    ]
    best, worst = max(rewards), min(rewards)
    mean = sum(rewards) / len(rewards)
    metrics = {
        "reward/mean": mean,
        "reward/std": _std(rewards),
        "reward/min": worst,
        "reward/max": best,
        "group/reward_std_mean": sum(_std(values) for values in by_group) / len(by_group),
        "group/zero_variance_frac": _fraction(len(set(values)) == 1 for values in by_group),
        "group/all_correct_frac": _fraction(min(values) == best for values in by_group),
        "group/none_correct_frac": _fraction(max(values) == worst for values in by_group),
        "response_length/mean": sum(lengths) / len(lengths),
        "response_length/max": float(max(lengths)),
        "response_length/p50": float(_percentile(lengths, 0.50)),
        "response_length/p95": float(_percentile(lengths, 0.95)),
        "response_length/p99": float(_percentile(lengths, 0.99)),
        "response_length/cv": _std(lengths) / max(1.0, sum(lengths) / len(lengths)),
        "response_length/truncated_frac": _fraction(one.finish_reason == "length" for one in trajectories),
    }
    if turns:
        metrics |= {
            "workflow/turns_mean": sum(turns) / len(turns),
            "workflow/turns_max": float(max(turns)),
            "workflow/tool_calls_mean": sum(one.tool_calls for one in trajectories) / len(trajectories),
            "workflow/environment_tokens_frac": 1 - sum(lengths) / tokens,
        }
    if scores:
        metrics["reward/score_mean"] = sum(scores) / len(scores)
    return metrics


def time_metrics(seconds: Mapping[str, float]) -> dict[str, float]:
    """Time metrics from the phase timer's seconds. Wait, prepare, proximal, reference, values, train, publish and
    checkpoint add up to the step."""
    spent = defaultdict(float, seconds)
    step = sum(spent.values())
    metrics = {
        "time/step_seconds": step,
        "time/wait_batch_seconds": spent["wait_batch"],
        "time/prepare_seconds": spent["prepare"],
        "time/proximal_seconds": spent["proximal"],
        "time/train_seconds": spent["train"],
        "time/publish_seconds": spent["gather"] + spent["write"] + spent["announce"],
        "time/gather_seconds": spent["gather"],
        "time/write_seconds": spent["write"],
        "time/announce_seconds": spent["announce"],
        "time/checkpoint_seconds": spent["checkpoint"],
        "idle/trainer_frac": spent["wait_batch"] / step,
    }
    if "reference" in seconds:
        metrics["time/reference_seconds"] = spent["reference"]
    if "values" in seconds:
        metrics["time/values_seconds"] = spent["values"]
    return metrics


def memory_metrics() -> dict[str, float]:
    """Peak memory of this process and, if there is one, of its accelerator."""
    metrics = {"memory/trainer_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0}
    if torch.cuda.is_available():
        metrics["memory/accelerator_peak_bytes"] = float(torch.cuda.max_memory_allocated())
    return metrics


def mean_staleness(groups: Sequence[Group], *, version: int) -> float:
    """Mean over trajectories of the version in training minus the oldest version among the tokens, for the log.

    The controller reports the full staleness metrics.
    """
    lags = [
        version - min(trajectory.policy_versions)
        for group in groups
        for trajectory in group.trajectories
        if trajectory.policy_versions
    ]
    return sum(lags) / len(lags) if lags else 0.0


def _fraction(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values)


def _std(values: Sequence[float]) -> float:
    """The population standard deviation."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


def _percentile(values: Sequence[int], fraction: float) -> int:
    """The smallest value that at least `fraction` of the values do not exceed."""
    return sorted(values)[math.ceil(fraction * len(values)) - 1]
