"""SAPO: a soft gate in place of the clip."""

from __future__ import annotations

import torch

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.losses.token_loss import LossTokens, TokenLoss


def sapo(tokens: LossTokens, settings: AlgorithmSection) -> TokenLoss:
    """-w f(r) A with f(r) = 4/t sigmoid(t (r - 1)), t by the sign of A (arXiv 2511.20347, eq. 5-6).

    f'(1) = 1 whatever t: at the centre the gradient is PPO's, and it fades smoothly on both sides.
    """
    ratio = (tokens.logprobs - tokens.proximal_logprobs).exp()
    positive = (tokens.advantages > 0).to(ratio.dtype)
    temperature = positive * settings.option("temperature_positive") + (1 - positive) * settings.option(
        "temperature_negative"
    )
    gate = 4.0 / temperature * torch.sigmoid(temperature * (ratio - 1.0))
    return TokenLoss(loss=-tokens.weights * gate * tokens.advantages, ratio=ratio.detach())
