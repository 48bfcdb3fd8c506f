"""Scores as code of others reports them, in JSON: a number, or {"score": number, "parts": {name: number}}."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from gpu_agents.rewards.reward import ScoringError
from oolong.untrusted import label_error

MOST_PARTS = 64


def read_number(value: object, what: str) -> float:
    """Raises ScoringError for anything but a finite number."""
    if isinstance(value, (bool, int, float)) and abs(value) <= sys.float_info.max:  # neither is NaN
        return float(value)
    raise ScoringError(f"{what} must be a finite number, got {value!r:.80}")


def read_parts(document: Mapping[str, object]) -> dict[str, float]:
    """The parts of a reported score. Raises ScoringError for too many, and for names or values that cannot be kept."""
    parts = document.get("parts", {})
    if not isinstance(parts, dict):
        raise ScoringError(f"parts must be a mapping of names to numbers, got {parts!r:.80}")
    if len(parts) > MOST_PARTS:
        raise ScoringError(f"parts has {len(parts)} names, at most {MOST_PARTS} are kept")
    for name in parts:
        if wrong := label_error(name):
            raise ScoringError(f"parts has the name {name!r:.80}: {wrong}")
    return {name: read_number(value, f"parts[{name!r}]") for name, value in parts.items()}
