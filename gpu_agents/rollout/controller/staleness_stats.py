"""Staleness of trained and of dropped trajectories (SEMANTICS section 3): per batch for the charts, in total for the
summary. The trained ones alone would hide the cost of a straggler policy, because only survivors are among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import compress

import msgspec

from oolong.contracts.rollout import Group, Trajectory


class ConsumedTotals(msgspec.Struct, kw_only=True):
    """Of the whole run, recoveries included: it is part of the snapshot."""

    by_trajectory: dict[int, int] = {}  # staleness -> trajectories trained on
    by_token: dict[int, int] = {}  # lag -> tokens trained on
    exceeded: int = 0  # trajectories over the max staleness that was in force when they were taken
    exceeded_groups: int = 0  # groups with such a trajectory
    interruptions: int = 0
    trajectories_spanning_versions: int = 0

    def add(self, batch: BatchStaleness, *, bound: int) -> None:
        """`bound` is the max staleness when the batch was taken."""
        self.exceeded += sum(count for lag, count in batch.by_trajectory.items() if lag > bound)
        for lag, count in batch.by_trajectory.items():
            self.by_trajectory[lag] = self.by_trajectory.get(lag, 0) + count
        for lag, count in batch.by_token.items():
            self.by_token[lag] = self.by_token.get(lag, 0) + count


class DroppedTotals(msgspec.Struct, kw_only=True):
    """Dropped tokens and trajectories by reason; of the whole run, recoveries included: it is part of the snapshot."""

    by_token: dict[str, dict[int, int]] = {}  # reason -> lag at the drop -> tokens
    by_trajectory: dict[str, dict[int, int]] = {}  # reason -> staleness at the drop -> trajectories

    def add(self, reason: str, trajectories: list[Trajectory], *, version: int) -> None:
        """`version` is the newest one at the drop."""
        tokens = self.by_token.setdefault(reason, {})
        staleness = self.by_trajectory.setdefault(reason, {})
        for trajectory in trajectories:
            if not trajectory.policy_versions:
                continue
            lag = version - min(trajectory.policy_versions)
            staleness[lag] = staleness.get(lag, 0) + 1
            for token_version in compress(trajectory.policy_versions, trajectory.loss_mask):
                tokens[version - token_version] = tokens.get(version - token_version, 0) + 1

    def tokens_by_lag(self) -> dict[int, int]:
        """Over all reasons."""
        return _sum(self.by_token.values())

    def copy(self) -> DroppedTotals:
        return DroppedTotals(by_token=_copy(self.by_token), by_trajectory=_copy(self.by_trajectory))

    def since(self, earlier: DroppedTotals) -> DroppedTotals:
        return DroppedTotals(
            by_token=_difference(self.by_token, earlier.by_token),
            by_trajectory=_difference(self.by_trajectory, earlier.by_trajectory),
        )


class SelectionBias(msgspec.Struct, kw_only=True):
    """Lengths of stale trajectories that were dropped against taken ones: dropping favors short ones."""

    dropped_trajectories: int = 0
    dropped_tokens: int = 0
    kept_trajectories: int = 0
    kept_tokens: int = 0

    @property
    def mean_dropped(self) -> float | None:
        return self.dropped_tokens / self.dropped_trajectories if self.dropped_trajectories else None

    @property
    def mean_trained(self) -> float | None:
        return self.kept_tokens / self.kept_trajectories if self.kept_trajectories else None

    @property
    def ratio(self) -> float | None:
        """Mean length of taken trajectories over the mean length of all finished ones; 1 is no bias."""
        finished = self.kept_trajectories + self.dropped_trajectories
        if self.mean_trained is None or not self.kept_tokens + self.dropped_tokens:
            return None
        return self.mean_trained / ((self.kept_tokens + self.dropped_tokens) / finished)


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
    """Staleness at the version at which the batch is trained. Empty completions have none."""
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


def percentile(histogram: dict[int, int], fraction: float) -> int:
    """The smallest value that at least `fraction` of the counted values do not exceed."""
    target = fraction * sum(histogram.values())
    seen = 0
    for value in sorted(histogram):
        seen += histogram[value]
        if seen >= target:
            return value
    raise ValueError("a percentile needs at least one value")


def fraction_over(histogram: dict[int, int], bound: int) -> float:
    return sum(count for value, count in histogram.items() if value > bound) / sum(histogram.values())


def _sum(histograms: Iterable[dict[int, int]]) -> dict[int, int]:
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return dict(total)


def _copy(by_reason: dict[str, dict[int, int]]) -> dict[str, dict[int, int]]:
    return {reason: dict(histogram) for reason, histogram in by_reason.items()}


def _difference(
    later: dict[str, dict[int, int]], earlier: dict[str, dict[int, int]]
) -> dict[str, dict[int, int]]:
    return {
        reason: dict(Counter(histogram) - Counter(earlier.get(reason, {})))
        for reason, histogram in later.items()
    }
