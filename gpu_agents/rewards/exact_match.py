"""Score 1 if the completion's answer equals the row's answer, else 0."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gpu_agents.model_text import boxed_at_end
from gpu_agents.rewards.reward import Completion, Reward, read_options
from oolong.contracts.run_spec.reward_options import ExactMatchOptions


def build(options: dict[str, Any]) -> Reward:
    """Truncated completions score 0."""
    chosen = read_options(ExactMatchOptions, options, reward="exact_match")
    extract, ignore_case = _extractor(chosen), chosen.ignore_case

    def score(completion: Completion) -> float:
        if completion.finish_reason != "stop":
            return 0.0
        given = extract(completion.text)
        if given is None:
            return 0.0
        given, wanted = given.strip(), completion.answer.strip()
        if ignore_case:
            given, wanted = given.casefold(), wanted.casefold()
        return float(given == wanted)

    return score


def _extractor(options: ExactMatchOptions) -> Callable[[str], str | None]:
    if options.extract == "boxed_at_end":
        # A box elsewhere would also reward text after it, which a policy learns to exploit.
        return boxed_at_end
    if options.pattern is None:
        return lambda text: text
    pattern = re.compile(options.pattern)
    return lambda text: _first_group(_last(pattern, text))


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for last in pattern.finditer(text):  # noqa: B007 - only the last match is needed
        pass
    return last


def _first_group(match: re.Match[str] | None) -> str | None:
    if match is None:
        return None
    return match.group(1) if match.re.groups else match.group(0)
