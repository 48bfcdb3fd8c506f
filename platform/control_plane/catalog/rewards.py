"""Reward functions that a run may name. Their code is in gpu_agents.rewards, which this side never imports."""

from __future__ import annotations

import os

BUILT_IN = ("exact_match", "math", "code", "format", "length", "composite")


def known_rewards() -> tuple[str, ...]:
    """The built-in ones, and those that OOLONG_EXTRA_REWARDS names (tests add a reward that fails on purpose)."""
    extra = os.environ.get("OOLONG_EXTRA_REWARDS", "")
    return (*BUILT_IN, *(name.strip() for name in extra.split(",") if name.strip()))
