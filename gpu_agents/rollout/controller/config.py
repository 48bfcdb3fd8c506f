"""What a run's spec lays down for its controller."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_agents.rollout.controller.batch_selection import StragglerPolicy
from gpu_agents.rollout.controller.filtering import FilterRules
from gpu_agents.rollout.controller.gate import GateRules


@dataclass(frozen=True, kw_only=True)
class Rules:
    gate: GateRules
    straggler_policy: StragglerPolicy
    group_size: int
    seed: int
    filter: FilterRules = field(default_factory=FilterRules)
    group_wall_seconds: float | None = None
    branching: bool = False  # a member may leave several trajectories, as agent sessions do
