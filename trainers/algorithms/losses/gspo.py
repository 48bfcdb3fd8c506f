"""GSPO: ratios and clipping per sequence."""

from __future__ import annotations

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.losses.base import LossInputs, LossOutputs, clipped_surrogate
from trainers.algorithms.sequences import sequence_mean


def gspo(inputs: LossInputs, settings: AlgorithmSection) -> LossOutputs:
    """-w min(s A, clip(s) A) with s = (current / proximal of the whole sequence)^(1/T) (arXiv 2507.18071, eq. 5-7).

    Implemented in token form (eq. 14 of the paper): the value of every token is the sequence's ratio, its gradient is
    s A dlogp of its own log-probability. With the sequence mean as loss aggregation this equals the sequence form; it
    is also defined for advantages per token.
    """
    log_ratio = inputs.logprobs - inputs.proximal_logprobs
    log_ratio_of_sequence = sequence_mean(log_ratio.detach(), inputs.sequence_ids, inputs.num_sequences)
    return clipped_surrogate((log_ratio - log_ratio.detach() + log_ratio_of_sequence).exp(), inputs, settings)
