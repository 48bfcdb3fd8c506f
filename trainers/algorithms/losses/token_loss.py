"""The nouns of a policy loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch


@dataclass(frozen=True)
class ClipRange:
    """The ratio stays within [1 - low, 1 + high] where leaving it would raise the objective."""

    low: float
    high: float


@dataclass(frozen=True)
class WeightLimit:
    """What happens to tokens whose behaviour weight w exceeds the limit: they count 0, count as limit, or stay."""

    mode: Literal["mask", "cap", "none"]
    limit: float


@dataclass(frozen=True)
class TokenLoss:
    """Per-token results, all [N] and in order. The caller sums `loss` and divides by its own token count."""

    loss: torch.Tensor  # to be minimised; carries the gradient
    ratio: torch.Tensor  # what is clipped: current over centre
    weight: torch.Tensor  # behaviour weight as computed, before its limit; 1 where the objective has none
    limited: torch.Tensor  # bool: w exceeded the limit and was masked or capped
    clipped_low: torch.Tensor  # bool: no gradient because the ratio left the range downwards
    clipped_high: torch.Tensor  # bool: the same upwards


class Objective(Protocol):
    def __call__(
        self,
        logprobs: torch.Tensor,  # [N] of the current policy, with gradient
        proximal_logprobs: torch.Tensor,  # [N]
        behaviour_logprobs: torch.Tensor,  # [N]
        advantages: torch.Tensor,  # [N]
        *,
        clip: ClipRange,
        weight_limit: WeightLimit,
    ) -> TokenLoss: ...


def clipped_objective(
    ratio: torch.Tensor, advantages: torch.Tensor, clip: ClipRange
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """min(r A, clip(r) A) and where the clip took the gradient away, below and above (arXiv 1707.06347, eq. 7)."""
    bounded = ratio.clamp(1.0 - clip.low, 1.0 + clip.high)
    value = torch.minimum(ratio * advantages, bounded * advantages)
    with torch.no_grad():
        low = (ratio < 1.0 - clip.low) & (advantages < 0)
        high = (ratio > 1.0 + clip.high) & (advantages > 0)
    return value, low, high
