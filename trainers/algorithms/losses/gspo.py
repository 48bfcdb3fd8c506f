"""GSPO: importance ratios and clipping of whole sequences."""

from __future__ import annotations

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.losses.token_loss import LossTokens, TokenLoss, clipped
from trainers.algorithms.sequences import sequence_mean


def gspo(tokens: LossTokens, settings: AlgorithmSection) -> TokenLoss:
    """-w min(s A, clip(s) A) with s = (current / proximal of the whole sequence)^(1/T) (arXiv 2507.18071, eq. 5-7).

    In its token form (eq. 14 there): every token has the sequence's ratio as value, and the gradient of its own
    log-probability, s A dlogp. Under `loss_normalisation: sequences` that is the sequence form; with advantages per
    token it remains defined.
    """
    log_ratio = tokens.logprobs - tokens.proximal_logprobs
    of_sequence = sequence_mean(log_ratio.detach(), tokens.sequence, tokens.sequences)
    return clipped((log_ratio - log_ratio.detach() + of_sequence).exp(), tokens, settings)
