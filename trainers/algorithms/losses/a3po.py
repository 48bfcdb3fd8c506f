"""A-3PO: decoupled PPO with an approximated proximal policy, so without the proximal forward pass."""

from __future__ import annotations

from dataclasses import replace

import torch

from oolong.contracts.run_spec import AlgorithmSection
from trainers.algorithms.importance_weights import apply_bounds
from trainers.algorithms.losses.base import LossInputs, LossOutputs, clipped_surrogate


def a3po(inputs: LossInputs, settings: AlgorithmSection) -> LossOutputs:
    """Decoupled PPO with log proximal = behavior + d/(d+1) (current - behavior), d = version lag (arXiv 2512.06547).

    In log space the proximal policy is interpolated d of d+1 steps from the behavior to the current policy. At lag 0 it
    is the behavior policy. The importance weight is truncated or masked per token, as the RunSpec says.
    """
    with torch.no_grad():
        fraction = inputs.version_lag / (inputs.version_lag + 1.0)
        proximal = inputs.behavior_logprobs + fraction * (inputs.logprobs - inputs.behavior_logprobs)
        weights = apply_bounds(proximal - inputs.behavior_logprobs, settings.importance_weight)
    approximated = replace(inputs, proximal_logprobs=proximal, importance_weights=weights.bounded)
    outputs = clipped_surrogate((inputs.logprobs - proximal).exp(), approximated, settings)
    return replace(outputs, weight_out_of_bounds=weights.out_of_bounds)
