"""Score 1 if the completion has the required format, else 0: each tag once and in order, or a pattern."""

from __future__ import annotations

import re
from typing import Any

from gpu_agents.rewards.reward import Completion, Reward, read_options
from oolong.contracts.run_spec.reward_options import FormatOptions


def build(options: dict[str, Any]) -> Reward:
    chosen = read_options(FormatOptions, options, reward="format")
    if chosen.pattern is None:
        tags = chosen.tags or []
        return lambda completion: float(has_tags(completion.text, tags))
    pattern = re.compile(chosen.pattern, re.DOTALL)

    def score(completion: Completion) -> float:
        return float(pattern.fullmatch(completion.text.strip()) is not None)

    return score


def has_tags(text: str, tags: list[str]) -> bool:
    """One linear pass per tag, whatever the text."""
    position = 0
    for tag in tags:
        opening, closing = f"<{tag}>", f"</{tag}>"
        if text.count(opening) != 1 or text.count(closing) != 1:
            return False
        start, end = text.find(opening), text.find(closing)
        if end < start or text[position:start].strip():
            return False
        position = end + len(closing)
    return not text[position:].strip()
