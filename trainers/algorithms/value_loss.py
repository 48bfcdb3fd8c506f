"""The critic's loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class ValueLoss:
    loss: torch.Tensor  # [N], to be minimised
    clipped: torch.Tensor  # [N] bool: no gradient because the value has left its range


def value_loss(
    values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, *, clip: float | None
) -> ValueLoss:
    """max((V - R)^2, (clip(V) - R)^2) / 2 with clip(V) within `clip` of the value before the step; all [N].

    As PPO's reference implementation has it (arXiv 2005.12729, section 3).
    """
    free = (values - returns).square()
    if clip is None:
        return ValueLoss(free / 2, torch.zeros_like(free, dtype=torch.bool))
    near = old_values + (values - old_values).clamp(-clip, clip)
    bounded = (near - returns).square()
    return ValueLoss(torch.maximum(free, bounded) / 2, (bounded > free).detach())
