"""Noise of a difference of two values, and the result of a comparison given it. Pure arithmetic."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oolong.cli.regression.results import RegressionResult

Z95 = 1.96  # of the two-sided intervals that evaluations come with
CONFIDENCE = 0.99


@dataclass(frozen=True)
class Bounds:
    """What a comparison tolerates, and how sure it must be of a regression."""

    tolerance: float = 0.0  # how much worse is accepted
    confidence: float = CONFIDENCE  # one-sided: an unchanged model fails with a chance of 1 - confidence
    sigma: float | None = None  # standard deviation of one run's value, where it is known
    detect: float | None = None  # a regression of this size must be visible, or the comparison is undecided


@dataclass(frozen=True)
class Measured:
    """A value and its own uncertainty, where known."""

    value: float
    low: float | None = None  # ends of its 95 % interval, e.g. eval/accuracy_low
    high: float | None = None

    @property
    def sigma(self) -> float | None:
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / (2 * Z95)


@dataclass(frozen=True)
class Paired:
    """The same prompts scored for both models, prompt by prompt."""

    prompts: int
    gain: float  # mean of candidate minus baseline
    error: float  # standard error of that mean, over prompts
    left_out: int = 0  # prompts that only one of the two evaluations has


@dataclass(frozen=True)
class NoiseBand:
    half: float  # one-sided: a difference up to this may be noise
    source: str  # where it comes from, for the report


def pair(candidate: Mapping[str, float], baseline: Mapping[str, float]) -> Paired:
    """Pair the prompts that both have, at least two. A prompt's k samples count once, by their mean."""
    shared = [key for key in candidate if key in baseline]
    gains = [candidate[key] - baseline[key] for key in shared]
    return Paired(
        prompts=len(gains),
        gain=statistics.fmean(gains),
        error=statistics.stdev(gains) / math.sqrt(len(gains)),
        left_out=len(candidate.keys() | baseline.keys()) - len(shared),
    )


def noise_band(
    candidate: Measured, baseline: Sequence[Measured], bounds: Bounds, *, paired: Paired | None = None
) -> NoiseBand | None:
    """The noise of `candidate - baseline`; None when unknown.

    A stated sigma of one run wins; then the spread of several baseline runs (seeds), by Student's t with n - 1
    degrees of freedom; then the paired differences of the prompts; then the intervals of the two evaluations.
    """
    count, confidence = len(baseline), bounds.confidence
    if bounds.sigma is not None:
        half = normal_quantile(confidence) * bounds.sigma * math.sqrt(1 + 1 / count)
        return NoiseBand(half, f"stated sigma {bounds.sigma:g}")
    if count >= 2:
        spread = statistics.stdev(measured.value for measured in baseline)
        half = student_quantile(confidence, count - 1) * spread * math.sqrt(1 + 1 / count)
        return NoiseBand(half, f"spread of {count} baseline runs")
    if paired is not None:
        half = student_quantile(confidence, paired.prompts - 1) * paired.error
        return NoiseBand(half, f"paired over {paired.prompts} prompts")
    mine, theirs = candidate.sigma, baseline[0].sigma
    if mine is None or theirs is None:
        return None
    return NoiseBand(
        normal_quantile(confidence) * math.hypot(mine, theirs), "intervals of the two evaluations"
    )


def normal_quantile(confidence: float) -> float:
    return statistics.NormalDist().inv_cdf(confidence)


def student_quantile(confidence: float, degrees: int) -> float:
    """The one-sided quantile of Student's t, by bisection of its distribution; confidence in [0.5, 1)."""
    low, high = 0.0, 1.0
    while _student_cdf(high, degrees) < confidence:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_cdf(middle, degrees) < confidence else (low, middle)
    return high


def _student_cdf(t: float, degrees: int) -> float:
    """Abramowitz and Stegun, 26.7.3 and 26.7.4: a finite sum for whole degrees of freedom."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine, cosine) if odd else (1.0, 1.0)
    for k in range(3 if odd else 2, degrees - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    if odd:
        inside = 2 / math.pi * (angle + (sine * total if degrees > 1 else 0.0))
    else:
        inside = sine * total
    return (1 + inside) / 2


def evaluate(gain: float, bounds: Bounds, noise: NoiseBand | None) -> RegressionResult:
    """`gain` is how much better the candidate is (negative: worse).

    Fail when it is worse than tolerated, and by more than noise explains. Investigate when that is undecided:
    the noise is unknown, or larger than a regression that must be detected. Pass otherwise.
    """
    if noise is None:
        return RegressionResult.PASS if gain >= -bounds.tolerance else RegressionResult.INVESTIGATE
    if gain + noise.half < -bounds.tolerance:
        return RegressionResult.FAIL
    if bounds.detect is not None and noise.half > bounds.detect and gain - noise.half < -bounds.tolerance:
        return RegressionResult.INVESTIGATE
    return RegressionResult.PASS
