"""Scores of an evaluation with 95 % intervals. Pure functions.

For one score of 0 or 1 per prompt: Wilson's interval (Wilson 1927). For anything else, the mean over prompts of each
prompt's average: a percentile bootstrap over prompts, 1,000 resamples with a fixed seed, because completions of one
prompt are not independent of each other.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod, sqrt

import msgspec

from oolong.contracts.evaluation import MOST_PROMPTS, PromptScores, prompt_keys
from oolong.contracts.rollout import EvaluationPrompt

Z = 1.959964  # 97.5 % of the normal distribution
RESAMPLES = 1000


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    value: float
    low: float
    high: float


class EvaluationScores(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation in the summary. `sampled` is avg@k: the mean over prompts and their k samples."""

    version: int
    prompts: int
    greedy: float | None  # None if no greedy completion was requested
    sampled: float | None  # None if no completion was sampled
    mean_tokens: float
    seconds: float
    samples: int = 0  # k
    greedy_interval: tuple[float, float] | None = None
    sampled_interval: tuple[float, float] | None = None
    success_score: float = 1.0
    pass_at: dict[int, Estimate] = {}  # k -> fraction of prompts that at least one of k samples solves
    truncated_frac: float = 0.0
    accuracy: float | None = None  # fraction of correct completions: greedy ones, or else sampled ones
    accuracy_interval: tuple[float, float] | None = None
    by_source: dict[str, Estimate] = {}  # accuracy of the prompts of each source of the dataset


def score_evaluation(
    *,
    version: int,
    greedy: Sequence[float],
    sampled: Sequence[Sequence[float]],
    success_score: float,
    mean_tokens: float,
    truncated_frac: float,
    seconds: float,
    sources: Sequence[str] = (),
) -> EvaluationScores:
    """`greedy` [prompts] or empty; `sampled` [prompts][k] or empty rows; `sources` [prompts] or empty, "" for none."""
    samples = min((len(scores) for scores in sampled), default=0)
    averages = [sum(scores) / len(scores) for scores in sampled] if samples else []
    greedy_estimate = estimate(greedy) if greedy else None
    sampled_estimate = estimate(averages) if averages else None
    right = _right(greedy, sampled, success_score)
    accuracy = estimate(right)
    by_source: dict[str, list[float]] = {}
    for source, value in zip(sources, right, strict=bool(sources)):
        if source:
            by_source.setdefault(source, []).append(value)
    return EvaluationScores(
        version=version,
        prompts=max(len(greedy), len(sampled)),
        greedy=greedy_estimate.value if greedy_estimate else None,
        greedy_interval=(greedy_estimate.low, greedy_estimate.high) if greedy_estimate else None,
        sampled=sampled_estimate.value if sampled_estimate else None,
        sampled_interval=(sampled_estimate.low, sampled_estimate.high) if sampled_estimate else None,
        samples=samples,
        success_score=success_score,
        pass_at={
            k: estimate([pass_at_k(_successes(scores, success_score), samples, k) for scores in sampled])
            for k in _ks(samples)
        },
        mean_tokens=mean_tokens,
        truncated_frac=truncated_frac,
        seconds=seconds,
        accuracy=accuracy.value,
        accuracy_interval=(accuracy.low, accuracy.high),
        by_source={source: estimate(values) for source, values in by_source.items()},
    )


def score_prompts(
    *,
    label: str,
    version: int,
    prompts: Sequence[EvaluationPrompt],
    greedy: Sequence[float],
    sampled: Sequence[Sequence[float]],
    success_score: float,
) -> PromptScores | None:
    """The same scores by prompt, for comparisons; None if there are too many prompts for one record."""
    if len(prompts) > MOST_PROMPTS:
        return None
    samples = min((len(scores) for scores in sampled), default=0)
    return PromptScores(
        label=label,
        version=version,
        success_score=success_score,
        samples=samples,
        prompts=prompt_keys((prompt.prompt, prompt.answer) for prompt in prompts),
        right=_right(greedy, sampled, success_score),
        greedy=list(greedy),
        sampled=[sum(scores) / len(scores) for scores in sampled] if samples else [],
    )


def _right(greedy: Sequence[float], sampled: Sequence[Sequence[float]], success_score: float) -> list[float]:
    """[prompts]: whether the greedy completion is right, else the share of right samples."""
    if greedy:
        return [float(score >= success_score) for score in greedy]
    return [_successes(scores, success_score) / len(scores) for scores in sampled]


def pass_at_k(successes: int, samples: int, k: int) -> float:
    """Probability that k of the n samples, without replacement, contain a success: 1 - C(n-c, k) / C(n, k).

    The unbiased estimator, eq. 1 of arXiv 2107.03374, as a product, so that no factorial overflows.
    """
    if samples - successes < k:
        return 1.0
    return 1.0 - prod(1.0 - k / i for i in range(samples - successes + 1, samples + 1))


def estimate(values: Sequence[float]) -> Estimate:
    """The mean over prompts, with its interval."""
    mean = sum(values) / len(values)
    low, high = wilson(values) if set(values) <= {0.0, 1.0} else bootstrap(values)
    return Estimate(value=mean, low=low, high=high)


def wilson(values: Sequence[float]) -> tuple[float, float]:
    """Of a fraction of independent successes; always within [0, 1], also for none or all of a few."""
    n, rate = len(values), sum(values) / len(values)
    middle = (rate + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * sqrt(rate * (1 - rate) / n + Z**2 / (4 * n**2))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """Percentiles 2.5 and 97.5 of the means of resamples."""
    generator = random.Random(len(values))
    means = sorted(sum(generator.choices(values, k=len(values))) / len(values) for _ in range(RESAMPLES))
    return means[round(0.025 * RESAMPLES)], means[round(0.975 * RESAMPLES) - 1]


def _successes(scores: Sequence[float], success_score: float) -> int:
    return sum(score >= success_score for score in scores)


def _ks(samples: int) -> list[int]:
    """Powers of two up to `samples`, and `samples` itself."""
    powers = [2**i for i in range(samples.bit_length()) if 2**i <= samples]
    return sorted({*powers, samples} - {0})
