"""Reward functions that a run may name. Their code is in gpu_agents.rewards, which this side never imports."""

from __future__ import annotations

BUILT_IN = ("exact_match", "math", "code", "format", "length", "composite", "http", "judge")
