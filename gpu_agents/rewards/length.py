"""Length reward: 1 up to `full_until`, then linear to 0 at `zero_from`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_agents.rewards.reward import Completion, Reward, read_options
from oolong.contracts.run_spec.reward_options import LengthOptions

_UNITS: dict[str, Callable[[str], int]] = {"characters": len, "words": lambda text: len(text.split())}


def build(options: dict[str, Any]) -> Reward:
    chosen = read_options(LengthOptions, options, reward="length")
    measure, full, zero = _UNITS[chosen.unit], chosen.full_until, chosen.zero_from

    def score(completion: Completion) -> float:
        return min(1.0, max(0.0, (zero - measure(completion.text)) / (zero - full)))

    return score
