"""Policy losses: one file each, one line in the table. All are functions of tokens; none knows about batches."""

from __future__ import annotations

from trainers.algorithms.losses.decoupled_ppo import decoupled_ppo
from trainers.algorithms.losses.ppo import ppo
from trainers.algorithms.losses.token_loss import ClipRange, Objective, TokenLoss, WeightLimit

OBJECTIVES: dict[str, Objective] = {
    "ppo": ppo,
    "decoupled_ppo": decoupled_ppo,
}

__all__ = ["OBJECTIVES", "ClipRange", "Objective", "TokenLoss", "WeightLimit"]
