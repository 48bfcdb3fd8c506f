"""Pair the scores of two runs by prompt."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from oolong.cli.regression.noise import Measured, Paired, pair
from oolong.client import Client
from oolong.contracts.evaluation import PROMPT_SCORES, PromptScores

PAIRED_METRICS = ("eval/accuracy", "eval/greedy", "eval/sampled")
FEWEST_PROMPTS = 10  # fewer differences say little about their own spread


@dataclass(frozen=True)
class Side:
    run_id: str
    measured: Measured  # the value that is compared: the mean of the scores


class NotPaired(Exception):
    """The two runs cannot be paired; the comparison falls back to the intervals of the two evaluations."""


def pair_runs(client: Client, candidate: Side, baseline: Side, metric: str) -> Paired:
    """Raises NotPaired when the two have no, other, or too few prompts in common."""
    if metric not in PAIRED_METRICS:
        raise NotPaired(f"{metric} is no mean over evaluation prompts")
    one, other = (_scores(client, side, metric) for side in (candidate, baseline))
    if metric == "eval/accuracy" and one.success_score != other.success_score:
        raise NotPaired(
            f"evaluation.success_score is {one.success_score:g}, in the baseline {other.success_score:g}"
        )
    mine, theirs = one.by_prompt(metric), other.by_prompt(metric)
    shared = len(mine.keys() & theirs.keys())
    if shared < FEWEST_PROMPTS or 2 * shared < max(len(mine), len(theirs)):
        raise NotPaired(f"the evaluations share {shared} of {len(mine)} and {len(theirs)} prompts")
    return pair(mine, theirs)


def _scores(client: Client, side: Side, metric: str) -> PromptScores:
    found = client.runs.documents(side.run_id, name=PROMPT_SCORES)
    if not found:
        raise NotPaired(f"run {side.run_id} has no scores by prompt")
    try:
        scores = msgspec.convert(found[0].value, PromptScores)
        values = scores.by_prompt(metric).values()
    except (msgspec.ValidationError, ValueError) as error:
        raise NotPaired(f"the scores by prompt of run {side.run_id} are not readable: {error}") from error
    if not values or not math.isclose(sum(values) / len(values), side.measured.value, abs_tol=1e-6):
        raise NotPaired(
            f"the scores by prompt of run {side.run_id} are of another evaluation than its {metric}"
        )
    return scores
