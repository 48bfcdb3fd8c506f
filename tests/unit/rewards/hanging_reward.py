"""A reward that hangs, dies or eats memory on command, for the tests of the pool."""

from __future__ import annotations

import os
import time
from typing import Any

from gpu_agents.rewards.reward import Completion, Reward


def build(options: dict[str, Any]) -> Reward:
    def score(completion: Completion) -> float:
        if completion.text == "hang":
            time.sleep(3600)
        if completion.text == "die":
            os._exit(3)
        if completion.text == "eat":
            return float(len(bytearray(4 * 1024**3)))
        if completion.text == "raise":
            raise ZeroDivisionError("by design")
        return 0.5

    return score
