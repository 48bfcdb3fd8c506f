"""Generalized advantage estimation: advantages per token, and their normalization over batch or groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from oolong.contracts.run_spec import AdvantageSection

SumOverRanks = Callable[[Sequence[float]], list[float]]


def gae(
    rewards: Sequence[torch.Tensor], values: Sequence[torch.Tensor], *, gamma: float, gae_lambda: float
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return (advantages, returns), one tensor [T] per sequence (arXiv 1506.02438, eq. 16).

    delta_t = r_t + gamma V_{t+1} - V_t, A_t = delta_t + gamma lambda A_{t+1}, return_t = A_t + V_t; beyond the last
    token V = A = 0. `values[s][t]` is the value of the state in which token t is sampled. T counts loss tokens only:
    environment tokens in between are no time steps.
    """
    if not rewards:
        return [], []
    lengths = [len(one) for one in rewards]
    reward = torch.nn.utils.rnn.pad_sequence(list(rewards), batch_first=True)
    value = torch.nn.utils.rnn.pad_sequence(list(values), batch_first=True)
    # Padding has reward and value 0, so it contributes nothing.
    next_value = torch.nn.functional.pad(value[:, 1:], (0, 1))
    advantage = _discounted_sums(reward + gamma * next_value - value, gamma * gae_lambda)
    unpadded = [advantage[number, :length] for number, length in enumerate(lengths)]
    return unpadded, [one + own for one, own in zip(unpadded, values, strict=True)]


def _discounted_sums(deltas: torch.Tensor, discount: float) -> torch.Tensor:
    """[B, T]: the sum over k of discount^k delta_{t+k}, in log2(T) passes that double the number of summed deltas."""
    sums, span = deltas, 1
    while span < deltas.shape[1]:
        sums = sums + discount**span * torch.nn.functional.pad(sums[:, span:], (0, span))
        span *= 2
    return sums


def normalize_advantages(
    advantages: Sequence[torch.Tensor],
    groups: Sequence[int],
    *,
    num_groups: int,
    section: AdvantageSection,
    sum_over_ranks: SumOverRanks,
) -> list[torch.Tensor]:
    """Return (A - mean) / (std + epsilon), with mean and std over the loss tokens of the batch or group on all ranks.

    `advantages[s]` [T] belongs to group `groups[s]`; the batch has `num_groups` groups. Tokens weigh equally, so long
    completions weigh more than in `advantages.rollout_advantages`, which averages over rollouts.
    """
    counts, sums = [0.0] * num_groups, [0.0] * num_groups
    for one, group in zip(advantages, groups, strict=True):
        counts[group] += float(len(one))
        sums[group] += float(one.double().sum())
    counts, sums = sum_over_ranks(counts), sum_over_ranks(sums)
    mean = _means(counts, sums, section.mean)
    centered = [one - mean[group] for one, group in zip(advantages, groups, strict=True)]
    if section.std == "none":
        return centered
    mean_of_std = _means(counts, sums, section.std)
    squares = [0.0] * num_groups
    for one, group in zip(advantages, groups, strict=True):
        squares[group] += float((one.double() - mean_of_std[group]).square().sum())
    variance = _means(
        counts, sum_over_ranks(squares), section.std, correction=int(section.std_of == "sample")
    )
    return [
        one / (variance[group] ** 0.5 + section.epsilon) for one, group in zip(centered, groups, strict=True)
    ]


def _means(counts: list[float], sums: list[float], level: str, *, correction: int = 0) -> list[float]:
    """The mean per group: over the group's tokens, over the batch's, or 0. Divides by the count minus `correction`."""
    if level == "none":
        return [0.0] * len(counts)
    if level == "batch":
        return [sum(sums) / max(1.0, sum(counts) - correction)] * len(counts)
    return [of / max(1.0, count - correction) for of, count in zip(sums, counts, strict=True)]
