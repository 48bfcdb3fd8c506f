"""1 if what the completion gives as its answer is the row's answer, else 0."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gpu_agents.model_text import boxed_at_end
from gpu_agents.rewards.reward import Completion, OptionsRefused, Reward, refuse_unknown


def build(options: dict[str, Any]) -> Reward:
    """Options: `extract` = boxed_at_end (default) | regex | whole; `pattern` for regex (its first group, the
    last match in the text); `ignore_case`. A completion cut off at the length limit never scores."""
    refuse_unknown(options, {"extract", "pattern", "ignore_case"}, reward="exact_match")
    extract = _extractor(options)
    ignore_case = bool(options.get("ignore_case", False))

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


def _extractor(options: dict[str, Any]) -> Callable[[str], str | None]:
    kind = options.get("extract", "boxed_at_end")
    if kind != "regex" and "pattern" in options:
        raise OptionsRefused(f"option pattern goes with extract: regex, not with extract: {kind}")
    if kind == "boxed_at_end":
        # Not a box anywhere: that would also pay for what is printed after it, and a policy finds that out.
        return boxed_at_end
    if kind == "whole":
        return lambda text: text
    if kind == "regex":
        pattern = _compile(options.get("pattern"))
        return lambda text: _first_group(_last(pattern, text))
    raise OptionsRefused(f"exact_match has no extract {kind!r}; it has boxed_at_end, regex, whole")


def _compile(pattern: object) -> re.Pattern[str]:
    if not isinstance(pattern, str):
        raise OptionsRefused(r"extract: regex needs option pattern, for example 'Answer: (\d+)'")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise OptionsRefused(f"pattern {pattern!r} is not a regular expression: {error}") from error


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for last in pattern.finditer(text):  # noqa: B007 - of many matches only the last is kept
        pass
    return last


def _first_group(match: re.Match[str] | None) -> str | None:
    if match is None:
        return None
    return match.group(1) if match.re.groups else match.group(0)
