"""The DPO loss (arXiv 2305.18290), over pairs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional


@dataclass(frozen=True)
class DpoLosses:
    """One value per pair."""

    losses: torch.Tensor  # [P]
    chosen_rewards: torch.Tensor  # [P], without gradient
    rejected_rewards: torch.Tensor  # [P], likewise


def dpo_losses(
    logprobs: torch.Tensor,
    reference: torch.Tensor,
    lengths: torch.Tensor,
    *,
    beta: float,
    label_smoothing: float,
    length_normalized: bool,
) -> DpoLosses:
    """Eq. 7 of arXiv 2305.18290, with label smoothing e as in its conservative variant:

        reward = beta (log pi - log reference), divided by the completion's tokens with `length_normalized`
        loss = -(1 - e) log sigmoid(margin) - e log sigmoid(-margin), margin = chosen reward - rejected reward

    logprobs, reference [P, 2]: log-probability of the chosen and the rejected completion, summed over its tokens;
    lengths [P, 2]: their tokens. The variant trains on labels that are wrong with probability e.
    """
    ratios = logprobs - reference
    rewards = beta * (ratios / lengths if length_normalized else ratios)
    margin = rewards[:, 0] - rewards[:, 1]
    losses = -(1 - label_smoothing) * functional.logsigmoid(margin)
    if label_smoothing:
        losses = losses - label_smoothing * functional.logsigmoid(-margin)
    return DpoLosses(losses, rewards[:, 0].detach(), rewards[:, 1].detach())


def accuracy(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    """[P]: 1 where the chosen reward is the larger one, 0.5 where they are equal, else 0."""
    return (chosen > rejected).double() + 0.5 * (chosen == rejected).double()
