"""What the controller takes from the run's spec."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_agents.rollout.controller.batch_selection import StragglerPolicy
from gpu_agents.rollout.controller.filtering import FilterConfig
from gpu_agents.rollout.controller.gate import GateConfig


@dataclass(frozen=True, kw_only=True)
class ControllerConfig:
    gate: GateConfig
    straggler_policy: StragglerPolicy
    group_size: int
    seed: int
    filter: FilterConfig = field(default_factory=FilterConfig)
    group_timeout_seconds: float | None = None
    branching: bool = False  # a rollout may have several trajectories, as agent sessions do
