"""Policy losses: one file and one line of `OBJECTIVES` each."""

from __future__ import annotations

from trainers.algorithms.losses.a3po import a3po
from trainers.algorithms.losses.base import LossInputs, LossOutputs, Objective
from trainers.algorithms.losses.cispo import cispo
from trainers.algorithms.losses.decoupled_ppo import decoupled_ppo
from trainers.algorithms.losses.gspo import gspo
from trainers.algorithms.losses.ppo import ppo
from trainers.algorithms.losses.sapo import sapo

OBJECTIVES: dict[str, Objective] = {
    "decoupled_ppo": decoupled_ppo,
    "ppo": ppo,
    "gspo": gspo,
    "cispo": cispo,
    "sapo": sapo,
    "a3po": a3po,
}

__all__ = ["OBJECTIVES", "LossInputs", "LossOutputs", "Objective"]
