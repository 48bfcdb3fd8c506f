"""PPO with one old policy. With proximal log-probabilities recomputed, that is the proximal policy, and the data
counts as on-policy; with `proximal: none` the behaviour log-probabilities stand in their place."""

from __future__ import annotations

from dataclasses import replace

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.losses.token_loss import LossTokens, TokenLoss, clipped


def ppo(tokens: LossTokens, settings: AlgorithmSection) -> TokenLoss:
    """-min(r A, clip(r) A) with r = current / old (arXiv 1707.06347, eq. 7). Behaviour weights have no say here."""
    ratio = (tokens.logprobs - tokens.proximal_logprobs).exp()
    return clipped(ratio, replace(tokens, weights=tokens.weights.new_ones(())), settings)
