"""Importance weights w = proximal / behavior, which correct for stale data, and their truncation or masking.

w is computed per token, per sequence (the product), or as the sequence's geometric mean. It has no gradient and stays
constant during a train step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from oolong.contracts.run_spec import ImportanceWeightSection
from trainers.algorithms.sequences import sequence_mean, sequence_sum

SumOverRanks = Callable[[Sequence[float]], list[float]]
BISECTIONS = 60


@dataclass(frozen=True)
class ImportanceWeights:
    """All [N]."""

    raw: torch.Tensor  # w as computed
    bounded: torch.Tensor  # w after masking or truncation
    out_of_bounds: torch.Tensor  # bool: w was masked or truncated


def compute_importance_weights(
    log_weight: torch.Tensor,
    sequence_ids: torch.Tensor,
    num_sequences: int,
    section: ImportanceWeightSection,
    sum_over_ranks: SumOverRanks,
) -> ImportanceWeights:
    """Compute the weights of this rank's loss tokens [N] from log w.

    Levels: `token` is w_t, `sequence` the product over the sequence's tokens, `sequence_mean` its T-th root. The mode
    `second_moment` needs `sum_over_ranks`, because it considers the whole batch.
    """
    if section.mode == "second_moment":
        return mask_by_second_moment(log_weight, section.threshold, sum_over_ranks)
    if section.level == "sequence":
        log_weight = sequence_sum(log_weight, sequence_ids, num_sequences)
    elif section.level == "sequence_mean":
        log_weight = sequence_mean(log_weight, sequence_ids, num_sequences)
    return apply_bounds(log_weight, section)


def apply_bounds(log_weight: torch.Tensor, section: ImportanceWeightSection) -> ImportanceWeights:
    """Set weights over the bound to 0 (masking), to the bound (truncation), or leave them.

    With a lower bound too, masking is IcePop's (arXiv 2510.18855): w inside both bounds, 0 outside.
    """
    weight = log_weight.exp()
    over = weight > section.threshold
    if section.mode == "mask":
        if section.lower_threshold is not None:
            over |= weight < section.lower_threshold
        return ImportanceWeights(weight, weight.masked_fill(over, 0.0), over)
    if section.mode == "truncate":
        return ImportanceWeights(weight, weight.clamp(max=section.threshold), over)
    return ImportanceWeights(weight, weight, torch.zeros_like(over))


def mask_by_second_moment(
    log_weight: torch.Tensor, limit: float, sum_over_ranks: SumOverRanks
) -> ImportanceWeights:
    """Mask the tokens with the largest (log w)^2 until its mean over the remaining tokens is at most `limit`.

    M2PO (arXiv 2510.01161), over the whole batch. If the mean is within the limit, nothing is masked. The mean over the
    tokens below a threshold increases with the threshold, so the ranks find the largest valid one by bisection,
    exchanging two numbers per iteration.
    """
    moment = log_weight.double().square()

    def mean_under(threshold: float) -> float:
        kept = moment[moment <= threshold]
        tokens, total = sum_over_ranks([float(kept.numel()), float(kept.sum())])
        return total / tokens if tokens else 0.0

    if mean_under(math.inf) <= limit:
        threshold = math.inf
    else:
        low, high = 0.0, limit  # tokens within the limit never need masking
        while mean_under(high) <= limit:
            low, high = high, 2 * high
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if mean_under(middle) <= limit:
                low = middle
            else:
                high = middle
        threshold = low
    weight, over = log_weight.exp(), moment > threshold
    return ImportanceWeights(weight, weight.masked_fill(over, 0.0), over)
