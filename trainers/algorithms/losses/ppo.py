"""PPO with one old policy: the proximal policy if its log-probabilities are recomputed, with `proximal: none` the
behavior policy."""

from __future__ import annotations

from dataclasses import replace

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.losses.base import LossInputs, LossOutputs, clipped_surrogate


def ppo(inputs: LossInputs, settings: AlgorithmSection) -> LossOutputs:
    """-min(r A, clip(r) A) with r = current / old (arXiv 1707.06347, eq. 7). Importance weights are ignored."""
    ratio = (inputs.logprobs - inputs.proximal_logprobs).exp()
    return clipped_surrogate(
        ratio, replace(inputs, importance_weights=inputs.importance_weights.new_ones(())), settings
    )
