"""PPO with one old policy. With proximal log-probabilities recomputed, that is the proximal policy, and the data
counts as on-policy; with `proximal: none` the caller passes the behaviour log-probabilities in their place."""

from __future__ import annotations

import torch

from trainers.algorithms.losses.token_loss import ClipRange, TokenLoss, WeightLimit, clipped_objective


def ppo(
    logprobs: torch.Tensor,
    proximal_logprobs: torch.Tensor,
    behaviour_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    *,
    clip: ClipRange,
    weight_limit: WeightLimit,
) -> TokenLoss:
    """-min(r A, clip(r) A) with r = current / old (arXiv 1707.06347, eq. 7). The weight limit has no say here."""
    ratio = (logprobs - proximal_logprobs).exp()
    value, low, high = clipped_objective(ratio, advantages, clip)
    nowhere = torch.zeros_like(low)
    return TokenLoss(
        loss=-value,
        ratio=ratio.detach(),
        weight=(proximal_logprobs - behaviour_logprobs).exp(),
        limited=nowhere,
        clipped_low=low,
        clipped_high=high,
    )
