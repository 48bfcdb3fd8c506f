"""Decoupled PPO: the behavior policy determines the importance weight, the proximal policy the trust region."""

from __future__ import annotations

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.losses.base import LossInputs, LossOutputs, clipped_surrogate


def decoupled_ppo(inputs: LossInputs, settings: AlgorithmSection) -> LossOutputs:
    """-w min(u A, clip(u) A), u = current / proximal, w = proximal / behavior (arXiv 2505.24298, eq. 5).

    No gradient flows through w. Masked tokens (w = 0) and tokens with a truncated w still count in the denominator, so
    it does not depend on staleness.
    """
    return clipped_surrogate((inputs.logprobs - inputs.proximal_logprobs).exp(), inputs, settings)
