"""The clipped surrogate of PPO (arXiv 1707.06347, eq. 7) with bounds as options."""

from __future__ import annotations

import torch

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.losses import LossInputs, LossOutputs


def loss(
    inputs: LossInputs, settings: AlgorithmSection, *, low: float = 0.2, high: float = 0.28
) -> LossOutputs:
    ratio = (inputs.logprobs - inputs.proximal_logprobs).exp()
    bounded = ratio.clamp(1.0 - low, 1.0 + high)
    surrogate = torch.minimum(ratio * inputs.advantages, bounded * inputs.advantages)
    return LossOutputs(
        loss=-inputs.importance_weights * surrogate,
        ratio=ratio.detach(),
        clipped_low=(ratio < 1.0 - low) & (inputs.advantages < 0),
        clipped_high=(ratio > 1.0 + high) & (inputs.advantages > 0),
    )
