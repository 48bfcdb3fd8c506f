"""How fast a run advances, and when it is done: pure functions over samples of its progress."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from control_plane.fleet.forecast import Duration

MAX_SAMPLES = 40  # the newest ones: steps become slower or faster over a run
MIN_INTERVALS = 3  # between samples, before they say how much the pace varies
_Z90 = 1.2816  # 90th percentile of the standard normal distribution

Samples = Sequence[tuple[float, int]]  # Unix seconds and what was done by then, both ascending


def add_sample(samples: Samples, at: float, done: int) -> list[tuple[float, int]]:
    """The samples with a new one where something was done since the last one. Starts over when less is done: another
    attempt repeats steps."""
    kept = [] if samples and done < samples[-1][1] else list(samples)
    if kept and done == kept[-1][1]:
        return kept
    return [*kept, (at, done)][-MAX_SAMPLES:]


def remaining(samples: Samples, total: int, *, now: float) -> Duration | None:
    """The time until `total` is done. None while nothing was done between two samples.

    What is left is a sum of R durations of units (steps) like those of the n that were seen, with mean m and variance
    s². The variance of the difference between that sum and its estimate R·m is s²·(R + R²/n): the first part is that of
    the sum, the second part that of the estimated mean. The quantile is Student's with the degrees of freedom of the
    intervals.
    """
    if len(samples) < 2:
        return None
    intervals = [(late[0] - early[0], late[1] - early[1]) for early, late in pairwise(samples)]
    seconds, units = sum(one[0] for one in intervals), sum(one[1] for one in intervals)
    if units <= 0 or seconds <= 0:
        return None
    mean, left = seconds / units, max(0, total - samples[-1][1])
    p50 = max(0.0, left * mean - min(now - samples[-1][0], mean))
    freedom = len(intervals) - 1
    if freedom < MIN_INTERVALS - 1:
        return Duration(p50)
    variance = sum((took - mean * count) ** 2 / count for took, count in intervals) / freedom
    spread = math.sqrt(variance * (left + left**2 / units))
    return Duration(p50, p50 + _student90(freedom) * spread)


def _student90(freedom: int) -> float:
    """90th percentile of Student's t distribution (Abramowitz and Stegun 26.7.5, its first two terms)."""
    z = _Z90
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
