"""The nouns of a policy loss, and what several losses share.

A policy loss is `objective(tokens, settings) -> TokenLoss`: a function of the loss tokens of one microbatch, in which
sequences are whole. It knows nothing of batches, ranks or denominators; the learner scales and sums what it returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from oolong.contracts.run_spec import AlgorithmSection


@dataclass(frozen=True)
class LossTokens:
    """The N loss tokens of a microbatch in the row's order. Only `logprobs` has a gradient."""

    logprobs: torch.Tensor  # [N] of the current policy
    proximal_logprobs: torch.Tensor  # [N] centre of the clip; the behaviour ones where proximal is none
    behaviour_logprobs: torch.Tensor  # [N] as the engine reported them
    advantages: torch.Tensor  # [N]
    weights: torch.Tensor  # [N] behaviour weight w = proximal / behaviour after its limit; 0 where masked
    lag: torch.Tensor  # [N] int64, policy version trained minus the version that sampled the token
    sequence: torch.Tensor  # [N] int64, which of the microbatch's sequences the token is of, from 0
    sequences: int


@dataclass(frozen=True)
class TokenLoss:
    """Per-token results, all [N] and in order. What an objective has no notion of stays None and has no metric."""

    loss: torch.Tensor  # to be minimised; carries the gradient
    ratio: torch.Tensor | None = None  # what is clipped: current over centre
    clipped_low: torch.Tensor | None = None  # bool: no gradient because the ratio left the range downwards
    clipped_high: torch.Tensor | None = None  # bool: the same upwards
    dual_clipped: torch.Tensor | None = (
        None  # bool: advantage negative, no gradient for a ratio over dual_clip
    )
    limited: torch.Tensor | None = None  # bool: w over its limit, where the objective itself computes w


class Objective(Protocol):
    def __call__(self, tokens: LossTokens, settings: AlgorithmSection) -> TokenLoss: ...


def clipped(ratio: torch.Tensor, tokens: LossTokens, settings: AlgorithmSection) -> TokenLoss:
    """-w min(r A, clip(r) A), where A < 0 at least w c A with c = dual_clip.

    arXiv 1707.06347, eq. 7; the dual clip is of arXiv 1912.09729, eq. 5. The caller says whether w counts by what it
    puts into `tokens.weights`.
    """
    advantages = tokens.advantages
    bounded = ratio.clamp(1.0 - settings.clip_low, 1.0 + settings.clip_high)
    value = torch.minimum(ratio * advantages, bounded * advantages)
    with torch.no_grad():
        heard = tokens.weights > 0
        low = (ratio < 1.0 - settings.clip_low) & (advantages < 0) & heard
        high = (ratio > 1.0 + settings.clip_high) & (advantages > 0) & heard
        dual = torch.zeros_like(low)
    if settings.dual_clip is not None:
        value = torch.where(advantages < 0, torch.maximum(value, settings.dual_clip * advantages), value)
        dual = (ratio.detach() > settings.dual_clip) & (advantages < 0) & heard
    return TokenLoss(
        loss=-tokens.weights * value,
        ratio=ratio.detach(),
        clipped_low=low,
        clipped_high=high,
        dual_clipped=dual,
    )
