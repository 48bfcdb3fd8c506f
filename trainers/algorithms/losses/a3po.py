"""A-3PO: decoupled PPO without the proximal forward pass."""

from __future__ import annotations

from dataclasses import replace

import torch

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.losses.token_loss import LossTokens, TokenLoss, clipped
from trainers.algorithms.weights import limited


def a3po(tokens: LossTokens, settings: AlgorithmSection) -> TokenLoss:
    """Decoupled PPO with log proximal = behaviour + d/(d+1) (current - behaviour), d = lag (arXiv 2512.06547).

    The proximal policy lies d of d+1 versions on the way from the behaviour to the current one; of a token of lag 0 it
    is the behaviour policy itself. The behaviour weight is limited as `behaviour_weight` says, token by token.
    """
    with torch.no_grad():
        share = tokens.lag / (tokens.lag + 1.0)
        proximal = tokens.behaviour_logprobs + share * (tokens.logprobs - tokens.behaviour_logprobs)
        weights = limited(proximal - tokens.behaviour_logprobs, settings.behaviour_weight)
    near = replace(tokens, proximal_logprobs=proximal, weights=weights.used)
    return replace(clipped((tokens.logprobs - proximal).exp(), near, settings), limited=weights.limited)
