"""A reward that has no score for every third row, to show what becomes of groups without one.

`python -m tests.support.failing_reward …` takes what `python -m gpu_agents.rewards` takes: the same job, in which
`exact_match` is this reward.
"""

from __future__ import annotations

import sys
from typing import Any

from gpu_agents.rewards import __main__ as entry
from gpu_agents.rewards import exact_match, registry
from gpu_agents.rewards.reward import Completion, Reward, Score, ScoringError

MODULE = "tests.support.failing_reward"


def build(options: dict[str, Any]) -> Reward:
    inner = exact_match.build(options)

    def score(completion: Completion) -> float | Score:
        if completion.row % 3 == 0:
            raise ScoringError(f"row {completion.row} is divisible by 3")
        return inner(completion)

    return score


if __name__ == "__main__":
    from tests.support import failing_reward  # children import it by this name

    registry.REWARDS["exact_match"] = failing_reward.build
    sys.exit(entry.main())
