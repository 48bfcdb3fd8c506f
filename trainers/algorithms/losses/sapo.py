"""SAPO: a soft gate instead of a clip."""

from __future__ import annotations

import torch

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.losses.base import LossInputs, LossOutputs


def sapo(inputs: LossInputs, settings: AlgorithmSection) -> LossOutputs:
    """-w f(r) A with f(r) = 4/t sigmoid(t (r - 1)), t by the sign of A (arXiv 2511.20347, eq. 5-6).

    f'(1) = 1 for every t: at ratio 1 the gradient equals PPO's, and it decays smoothly on both sides.
    """
    ratio = (inputs.logprobs - inputs.proximal_logprobs).exp()
    positive = (inputs.advantages > 0).to(ratio.dtype)
    temperature = positive * settings.option("temperature_positive") + (1 - positive) * settings.option(
        "temperature_negative"
    )
    gate = 4.0 / temperature * torch.sigmoid(temperature * (ratio - 1.0))
    return LossOutputs(loss=-inputs.importance_weights * gate * inputs.advantages, ratio=ratio.detach())
