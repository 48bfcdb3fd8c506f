"""Staleness of what is trained on (SEMANTICS section 3): per batch for the charts, in total for the summary."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import compress

import msgspec

from oolong.contracts.rollout import Group, Trajectory


class ConsumedTotals(msgspec.Struct, kw_only=True):
    """Over the whole run, recoveries included: it travels in the snapshot."""

    by_trajectory: dict[int, int] = {}  # staleness -> trajectories trained on
    interruptions: int = 0
    trajectories_spanning_versions: int = 0

    def add(self, batch: BatchStaleness) -> None:
        for lag, count in batch.by_trajectory.items():
            self.by_trajectory[lag] = self.by_trajectory.get(lag, 0) + count


@dataclass(frozen=True, kw_only=True)
class BatchStaleness:
    by_trajectory: dict[int, int]  # staleness -> trajectories
    by_token: dict[int, int]  # lag -> tokens
    spans: list[int]  # distinct versions of each trajectory
    interrupted: int

    @property
    def trajectories(self) -> int:
        return sum(self.by_trajectory.values())


def measure_batch(groups: list[Group], *, version: int) -> BatchStaleness:
    """Staleness against the version that the batch is trained at. Empty completions have none."""
    trajectories = [t for group in groups for t in group.trajectories if t.policy_versions]
    tokens: Counter[int] = Counter()
    for trajectory in trajectories:
        tokens.update(version - v for v in compress(trajectory.policy_versions, trajectory.loss_mask))
    return BatchStaleness(
        by_trajectory=dict(Counter(version - min(t.policy_versions) for t in trajectories)),
        by_token=dict(tokens),
        spans=[version_span(t) for t in trajectories],
        interrupted=sum(t.interruptions > 0 for t in trajectories),
    )


def version_span(trajectory: Trajectory) -> int:
    return len(set(trajectory.policy_versions))


def mean(histogram: dict[int, int]) -> float:
    return sum(value * count for value, count in histogram.items()) / sum(histogram.values())


def percentile(histogram: dict[int, int], share: float) -> int:
    """Smallest value that at least `share` of the counted things do not exceed."""
    wanted = share * sum(histogram.values())
    seen = 0
    for value in sorted(histogram):
        seen += histogram[value]
        if seen >= wanted:
            return value
    raise ValueError("a percentile of nothing was asked for")


def share_over(histogram: dict[int, int], bound: int) -> float:
    return sum(count for value, count in histogram.items() if value > bound) / sum(histogram.values())
