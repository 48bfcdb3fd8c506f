"""Counters of one attempt, for its summary and for the checks that end the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Counters:
    acks: int = 0
    failed_loads: int = 0
    versions_announced: int = 0
    finished_groups: int = 0  # submitted in this attempt
    consecutive_reward_errors: int = 0
    consecutive_workflow_errors: int = 0
    workflow_errors: Counter[str] = field(default_factory=Counter)  # by FailRequest.kind
    straggler_wait_seconds: float = 0.0
    forced_drops: int = 0  # times that finished groups were dropped because nothing else could make progress
    last_error: str = ""
