"""The critic's clipped value loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class ValueLoss:
    loss: torch.Tensor  # [N], to be minimized
    clipped: torch.Tensor  # [N] bool: no gradient because the value left the clip range


def value_loss(
    values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, *, clip: float | None
) -> ValueLoss:
    """max((V - R)^2, (clip(V) - R)^2) / 2, clip(V) within `clip` of the value before the step. All tensors are [N].

    As in PPO's reference implementation (arXiv 2005.12729, section 3).
    """
    unclipped = (values - returns).square()
    if clip is None:
        return ValueLoss(unclipped / 2, torch.zeros_like(unclipped, dtype=torch.bool))
    clipped_values = old_values + (values - old_values).clamp(-clip, clip)
    clipped = (clipped_values - returns).square()
    return ValueLoss(torch.maximum(unclipped, clipped) / 2, (clipped > unclipped).detach())
