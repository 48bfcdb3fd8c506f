"""Decoupled PPO: the behaviour policy says how to weigh a token, the proximal policy how far to move from."""

from __future__ import annotations

import torch

from trainers.algorithms.losses.token_loss import ClipRange, TokenLoss, WeightLimit, clipped_objective


def decoupled_ppo(
    logprobs: torch.Tensor,
    proximal_logprobs: torch.Tensor,
    behaviour_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    *,
    clip: ClipRange,
    weight_limit: WeightLimit,
) -> TokenLoss:
    """-w min(u A, clip(u) A), u = current / proximal, w = proximal / behaviour (arXiv 2505.24298, eq. 5).

    No gradient flows through w. A token over the limit is masked (counts 0) or capped (counts as the limit);
    either way it still counts as a token, so the step's denominator does not depend on staleness.
    """
    weight = (proximal_logprobs - behaviour_logprobs).exp().detach()
    over = weight > weight_limit.limit
    if weight_limit.mode == "mask":
        used = weight.masked_fill(over, 0.0)
    elif weight_limit.mode == "cap":
        used = weight.clamp(max=weight_limit.limit)
    else:
        used, over = weight, torch.zeros_like(over)
    ratio = (logprobs - proximal_logprobs).exp()
    value, low, high = clipped_objective(ratio, advantages, clip)
    return TokenLoss(
        loss=-used * value,
        ratio=ratio.detach(),
        weight=weight,
        limited=over,
        clipped_low=low & (used > 0),
        clipped_high=high & (used > 0),
    )
