"""Shaping by length: 1 up to `full_until`, then falling in a straight line to 0 at `zero_from`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_agents.rewards.reward import Completion, OptionsRefused, Reward, refuse_unknown

_UNITS: dict[str, Callable[[str], int]] = {"characters": len, "words": lambda text: len(text.split())}


def build(options: dict[str, Any]) -> Reward:
    """Options: numbers `full_until` and `zero_from`, full_until < zero_from; `unit` = characters (default) | words."""
    refuse_unknown(options, {"full_until", "zero_from", "unit"}, reward="length")
    unit = options.get("unit", "characters")
    if unit not in _UNITS:
        raise OptionsRefused(f"length has no unit {unit!r}; it has {', '.join(_UNITS)}")
    full, zero = options.get("full_until"), options.get("zero_from")
    if not isinstance(full, (int, float)) or not isinstance(zero, (int, float)) or not 0 <= full < zero:
        raise OptionsRefused(
            f"full_until={full!r} and zero_from={zero!r}: both are needed, with 0 <= full_until < zero_from"
        )
    measure = _UNITS[unit]

    def score(completion: Completion) -> float:
        return min(1.0, max(0.0, (zero - measure(completion.text)) / (zero - full)))

    return score
