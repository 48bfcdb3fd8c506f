"""Decoupled PPO: the behaviour policy says how to weigh a token, the proximal policy how far to move from."""

from __future__ import annotations

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.losses.token_loss import LossTokens, TokenLoss, clipped


def decoupled_ppo(tokens: LossTokens, settings: AlgorithmSection) -> TokenLoss:
    """-w min(u A, clip(u) A), u = current / proximal, w = proximal / behaviour (arXiv 2505.24298, eq. 5).

    No gradient flows through w. A token over the limit is masked (counts 0) or capped (counts as the limit); either
    way it still counts as a token, so the step's denominator does not depend on staleness.
    """
    return clipped((tokens.logprobs - tokens.proximal_logprobs).exp(), tokens, settings)
