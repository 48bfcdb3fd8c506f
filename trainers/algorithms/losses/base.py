"""Types of a policy loss, and the clipped surrogate that several losses share.

A policy loss is `objective(inputs, settings) -> LossOutputs`: a function of the loss tokens of one microbatch, which
holds whole sequences. It is independent of batches, ranks and denominators: the learner scales and sums the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from oolong.contracts.run_spec import AlgorithmSection


@dataclass(frozen=True)
class LossInputs:
    """The N loss tokens of a microbatch, in the order of the packed row. Only `logprobs` has a gradient."""

    logprobs: torch.Tensor  # [N] current policy
    proximal_logprobs: (
        torch.Tensor
    )  # [N] center of the clip; equal to behavior_logprobs with `proximal: none`
    behavior_logprobs: torch.Tensor  # [N] as the engine reported them
    advantages: torch.Tensor  # [N]
    importance_weights: torch.Tensor  # [N] w = proximal / behavior after truncation; 0 where masked
    version_lag: (
        torch.Tensor
    )  # [N] int64, policy version in training minus the version that sampled the token
    sequence_ids: torch.Tensor  # [N] int64, 0-based index of the token's sequence in the microbatch
    num_sequences: int


@dataclass(frozen=True)
class LossOutputs:
    """Per-token results, all [N] in the order of the inputs. Fields that a loss leaves None produce no metric."""

    loss: torch.Tensor  # to be minimized; carries the gradient
    ratio: torch.Tensor | None = None  # the clipped ratio, current / proximal
    clipped_low: torch.Tensor | None = None  # bool: no gradient because the ratio is below the clip range
    clipped_high: torch.Tensor | None = None  # bool: no gradient because the ratio is above the clip range
    dual_clipped: torch.Tensor | None = (
        None  # bool: no gradient: negative advantage and a ratio above dual_clip
    )
    weight_out_of_bounds: torch.Tensor | None = (
        None  # bool: w masked or truncated, if the loss itself computes w
    )


class Objective(Protocol):
    def __call__(self, inputs: LossInputs, settings: AlgorithmSection) -> LossOutputs: ...


def clipped_surrogate(ratio: torch.Tensor, inputs: LossInputs, settings: AlgorithmSection) -> LossOutputs:
    """-w min(r A, clip(r) A); where A < 0, the inner value is at least c A with c = dual_clip.

    arXiv 1707.06347, eq. 7; dual clip: arXiv 1912.09729, eq. 5. w is `inputs.importance_weights`.
    """
    advantages = inputs.advantages
    bounded = ratio.clamp(1.0 - settings.clip_low, 1.0 + settings.clip_high)
    value = torch.minimum(ratio * advantages, bounded * advantages)
    with torch.no_grad():
        unmasked = inputs.importance_weights > 0
        low = (ratio < 1.0 - settings.clip_low) & (advantages < 0) & unmasked
        high = (ratio > 1.0 + settings.clip_high) & (advantages > 0) & unmasked
        dual = torch.zeros_like(low)
    if settings.dual_clip is not None:
        value = torch.where(advantages < 0, torch.maximum(value, settings.dual_clip * advantages), value)
        dual = (ratio.detach() > settings.dual_clip) & (advantages < 0) & unmasked
    return LossOutputs(
        loss=-inputs.importance_weights * value,
        ratio=ratio.detach(),
        clipped_low=low,
        clipped_high=high,
        dual_clipped=dual,
    )
