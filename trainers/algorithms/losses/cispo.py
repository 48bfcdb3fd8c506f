"""CISPO: the ratio is clipped as a weight, and no token loses its gradient."""

from __future__ import annotations

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.losses.token_loss import LossTokens, TokenLoss


def cispo(tokens: LossTokens, settings: AlgorithmSection) -> TokenLoss:
    """-w stop(clip(r)) A log current, r = current / proximal (arXiv 2506.13585, eq. 4-5).

    There, the lower bound is left open (clip_low >= 1). The clipped shares count tokens whose weight was bounded.
    """
    ratio = (tokens.logprobs.detach() - tokens.proximal_logprobs).exp()
    bounded = ratio.clamp(1.0 - settings.clip_low, 1.0 + settings.clip_high)
    return TokenLoss(
        loss=-tokens.weights * bounded * tokens.advantages * tokens.logprobs,
        ratio=ratio,
        clipped_low=ratio < 1.0 - settings.clip_low,
        clipped_high=ratio > 1.0 + settings.clip_high,
    )
