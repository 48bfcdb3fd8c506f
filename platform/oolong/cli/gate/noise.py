"""How far apart two values may lie by chance, and what a difference is worth against that. Pure arithmetic."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from oolong.cli.gate.verdict import Verdict

# Student's t, two-sided, 95 %, by degrees of freedom from 1 on (Fisher and Yates, table III).
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
Z95 = 1.96


@dataclass(frozen=True)
class Measured:
    """A value, and what is known of its own uncertainty."""

    value: float
    low: float | None = None  # ends of its 95 % interval, e.g. eval/accuracy_low
    high: float | None = None

    @property
    def sigma(self) -> float | None:
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / (2 * Z95)


@dataclass(frozen=True)
class Band:
    half: float  # 95 %: differences up to this are noise
    source: str  # where it comes from, for the report


def band(candidate: Measured, baseline: Sequence[Measured], *, stated_sigma: float | None) -> Band | None:
    """The noise of `candidate - mean(baseline)`. None when nothing is known of it.

    A stated sigma of one run wins; then the spread of several baseline runs (seeds), by Student's t with n - 1
    degrees of freedom; then the intervals that the evaluations themselves give.
    """
    count = len(baseline)
    if stated_sigma is not None:
        return Band(Z95 * stated_sigma * math.sqrt(1 + 1 / count), f"stated sigma {stated_sigma:g}")
    if count >= 2:
        spread = statistics.stdev(measured.value for measured in baseline)
        return Band(
            student_t95(count - 1) * spread * math.sqrt(1 + 1 / count), f"spread of {count} baseline runs"
        )
    mine, theirs = candidate.sigma, baseline[0].sigma
    if mine is None or theirs is None:
        return None
    return Band(Z95 * math.hypot(mine, theirs), "95 % intervals of the two evaluations")


def student_t95(degrees: int) -> float:
    if degrees <= len(_T95):
        return _T95[degrees - 1]
    return Z95 + (Z95**3 + Z95) / (4 * degrees)  # first term of the Cornish-Fisher expansion


def judge(gain: float, *, tolerance: float, noise: Band | None) -> Verdict:
    """`gain` is how much better the candidate is (negative: worse).

    Not worse than tolerated: pass. Worse, and by more than chance makes: fail. Worse, and chance could have made it,
    or nothing is known of chance: investigate.
    """
    if gain >= -tolerance:
        return Verdict.PASS
    if noise is not None and gain + noise.half < -tolerance:
        return Verdict.FAIL
    return Verdict.INVESTIGATE
