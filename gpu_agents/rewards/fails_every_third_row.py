"""Test only: exact_match that raises on every third row, to show what becomes of groups without a score."""

from __future__ import annotations

from typing import Any

from gpu_agents.rewards import exact_match
from gpu_agents.rewards.reward import Completion, NoScore, Reward, Score


def build(options: dict[str, Any]) -> Reward:
    inner = exact_match.build(options)

    def score(completion: Completion) -> float | Score:
        if completion.row % 3 == 0:
            raise NoScore(f"row {completion.row} is divisible by 3")
        return inner(completion)

    return score
