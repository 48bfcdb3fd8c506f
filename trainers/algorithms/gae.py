"""Advantages per token: generalised advantage estimation, and its normalisation over batch or groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from oolong.contracts.run_spec import AdvantageSection

Sum = Callable[[Sequence[float]], list[float]]  # over all ranks


def gae(
    rewards: Sequence[torch.Tensor], values: Sequence[torch.Tensor], *, gamma: float, gae_lambda: float
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """(advantages, returns) of each sequence, [T] each (arXiv 1506.02438, eq. 16).

    delta_t = r_t + gamma V_{t+1} - V_t, A_t = delta_t + gamma lambda A_{t+1}, return_t = A_t + V_t; beyond the last
    token V = A = 0. `values[s][t]` is the value of the state in which token t is sampled. T counts loss tokens only:
    what an environment writes in between takes no time.
    """
    if not rewards:
        return [], []
    lengths = [len(one) for one in rewards]
    reward = torch.nn.utils.rnn.pad_sequence(list(rewards), batch_first=True)
    value = torch.nn.utils.rnn.pad_sequence(list(values), batch_first=True)
    following = torch.nn.functional.pad(
        value[:, 1:], (0, 1)
    )  # padding has reward and value 0, so it carries 0
    advantage = _discounted_sums(reward + gamma * following - value, gamma * gae_lambda)
    cut = [advantage[number, :length] for number, length in enumerate(lengths)]
    return cut, [one + own for one, own in zip(cut, values, strict=True)]


def _discounted_sums(deltas: torch.Tensor, discount: float) -> torch.Tensor:
    """[B, T]: sum over k of discount^k delta_{t+k}, in log2(T) passes: each doubles how many deltas a sum holds."""
    sums, held = deltas, 1
    while held < deltas.shape[1]:
        sums = sums + discount**held * torch.nn.functional.pad(sums[:, held:], (0, held))
        held *= 2
    return sums


def normalised(
    advantages: Sequence[torch.Tensor],
    groups: Sequence[int],
    *,
    group_count: int,
    section: AdvantageSection,
    total: Sum,
) -> list[torch.Tensor]:
    """(A - mean) / (std + epsilon) over the loss tokens of the batch or of the group, on all ranks together.

    advantages[s] [T] is of a sequence of group groups[s]; the batch has `group_count` groups. Tokens weigh equally, so
    long completions weigh more than under `advantages.advantages`, which is over trajectories.
    """
    counts, sums = [0.0] * group_count, [0.0] * group_count
    for one, group in zip(advantages, groups, strict=True):
        counts[group] += float(len(one))
        sums[group] += float(one.double().sum())
    counts, sums = total(counts), total(sums)
    mean = _means(counts, sums, section.mean)
    centred = [one - mean[group] for one, group in zip(advantages, groups, strict=True)]
    if section.std == "none":
        return centred
    about = _means(counts, sums, section.std)
    squares = [0.0] * group_count
    for one, group in zip(advantages, groups, strict=True):
        squares[group] += float((one.double() - about[group]).square().sum())
    variance = _means(counts, total(squares), section.std, correction=int(section.std_of == "sample"))
    return [
        one / (variance[group] ** 0.5 + section.epsilon) for one, group in zip(centred, groups, strict=True)
    ]


def _means(counts: list[float], sums: list[float], level: str, *, correction: int = 0) -> list[float]:
    """For each group, the mean over its own tokens, over all of the batch, or 0. `correction`: see `std_of`."""
    if level == "none":
        return [0.0] * len(counts)
    if level == "batch":
        return [sum(sums) / max(1.0, sum(counts) - correction)] * len(counts)
    return [of / max(1.0, count - correction) for of, count in zip(sums, counts, strict=True)]
