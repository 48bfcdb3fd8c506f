"""1 if the completion has the asked form, else 0: tags each once and in order, or a pattern over the whole text."""

from __future__ import annotations

import re
from typing import Any

from gpu_agents.rewards.reward import Completion, OptionsRefused, Reward, refuse_unknown


def build(options: dict[str, Any]) -> Reward:
    """Options, exactly one of: `tags` (["think", "answer"]: the text is <think>…</think><answer>…</answer>, white
    space aside, each tag once), `pattern` (a regular expression that must match the whole text)."""
    refuse_unknown(options, {"tags", "pattern"}, reward="format")
    if ("tags" in options) == ("pattern" in options):
        raise OptionsRefused("format needs one of tags and pattern, for example tags: [think, answer]")
    if "tags" in options:
        tags = options["tags"]
        if not isinstance(tags, list) or not tags or not all(isinstance(tag, str) and tag for tag in tags):
            raise OptionsRefused(f"tags={tags!r} is no list of names, for example [think, answer]")
        return lambda completion: float(has_tags(completion.text, tags))
    try:
        pattern = re.compile(str(options["pattern"]), re.DOTALL)
    except re.error as error:
        raise OptionsRefused(
            f"pattern {options['pattern']!r} is not a regular expression: {error}"
        ) from error

    def score(completion: Completion) -> float:
        return float(pattern.fullmatch(completion.text.strip()) is not None)

    return score


def has_tags(text: str, tags: list[str]) -> bool:
    """Without a regular expression: whatever the text, this takes one pass per tag."""
    place = 0
    for tag in tags:
        opening, closing = f"<{tag}>", f"</{tag}>"
        if text.count(opening) != 1 or text.count(closing) != 1:
            return False
        start, end = text.find(opening), text.find(closing)
        if end < start or text[place:start].strip():
            return False
        place = end + len(closing)
    return not text[place:].strip()
