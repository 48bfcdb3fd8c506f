"""Behaviour weights: how far the proximal policy has moved from the one that sampled a token, and what to do about it.

w = proximal / behaviour of a token, of its sequence, or of the sequence's geometric mean; one line per level, one
function per mode. w has no gradient and does not change during a train step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from oolong.contracts.run_spec import BehaviourWeightSection
from trainers.algorithms.sequences import sequence_mean, sequence_sum

Sum = Callable[[Sequence[float]], list[float]]  # over all ranks
BISECTIONS = 60


@dataclass(frozen=True)
class Weights:
    """All [N]."""

    raw: torch.Tensor  # w as computed
    used: torch.Tensor  # after its limit
    limited: torch.Tensor  # bool: w was out of bounds, so it was masked or capped


def behaviour_weights(
    log_weight: torch.Tensor,
    sequence: torch.Tensor,
    sequences: int,
    section: BehaviourWeightSection,
    total: Sum,
) -> Weights:
    """Of this rank's loss tokens [N]; `total` adds up over the ranks, for the mode that looks at the whole batch.

    token: w_t. sequence: the product over the sequence's tokens. sequence_mean: its T-th root.
    """
    if section.mode == "second_moment":
        return second_moment(log_weight, section.limit, total)
    if section.level == "sequence":
        log_weight = sequence_sum(log_weight, sequence, sequences)
    elif section.level == "sequence_mean":
        log_weight = sequence_mean(log_weight, sequence, sequences)
    return limited(log_weight, section)


def limited(log_weight: torch.Tensor, section: BehaviourWeightSection) -> Weights:
    """w over the limit counts 0 (mask), counts as the limit (cap), or stays (none); mask may have a lower bound too.

    The two-sided mask is IcePop's (arXiv 2510.18855): w inside [lower_limit, limit], 0 outside.
    """
    weight = log_weight.exp()
    over = weight > section.limit
    if section.mode == "mask":
        if section.lower_limit is not None:
            over |= weight < section.lower_limit
        return Weights(weight, weight.masked_fill(over, 0.0), over)
    if section.mode == "cap":
        return Weights(weight, weight.clamp(max=section.limit), over)
    return Weights(weight, weight, torch.zeros_like(over))


def second_moment(log_weight: torch.Tensor, limit: float, total: Sum) -> Weights:
    """The tokens of largest (log w)^2 are masked until its mean over the others is at most `limit`.

    M2PO (arXiv 2510.01161): over the whole batch, and nothing is masked where the mean is within the limit. The mean
    over the tokens under a threshold rises with the threshold, so the ranks find the largest one by bisection and
    exchange two numbers at a time.
    """
    moment = log_weight.double().square()

    def mean_under(threshold: float) -> float:
        kept = moment[moment <= threshold]
        tokens, sum_of = total([float(kept.numel()), float(kept.sum())])
        return sum_of / tokens if tokens else 0.0

    if mean_under(math.inf) <= limit:
        threshold = math.inf
    else:
        low, high = 0.0, limit  # tokens within the limit can always stay
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
    return Weights(weight, weight.masked_fill(over, 0.0), over)
