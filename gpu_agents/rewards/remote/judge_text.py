"""What a judge is asked, and the score that its reply has. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from gpu_agents.rewards.reported_score import read_number
from gpu_agents.rewards.reward import Completion, Reward, ScoringError, read_options
from oolong.contracts.run_spec.remote_rewards import JudgeOptions
from oolong.untrusted import parse_json

# Texts that servers read as tokens of a chat template: <|im_end|>, </s>, [INST].
_BRACKETS = re.compile(r"\[(?=/?[A-Z_]+\])")
PATTERN_CHARACTERS = 8000  # of a reply's end that a pattern is searched in


def messages_of(options: JudgeOptions, completion: Completion) -> list[dict[str, str]]:
    values = {"prompt": completion.prompt, "answer": completion.answer, "response": completion.text}
    # format_map reads the template alone: braces in a value stay text.
    content = options.template.format_map({name: quoted(text) for name, text in values.items()})
    system = [{"role": "system", "content": options.system}] if options.system is not None else []
    return [*system, {"role": "user", "content": content}]


def quoted(text: str) -> str:
    """A JSON string, in which the policy can neither end its quotes nor write a token of the judge's chat template."""
    escaped = json.dumps(text, ensure_ascii=False)
    return _BRACKETS.sub(r"\\u005b", escaped).replace("<", r"\u003c")


def read_reply(body: bytes) -> tuple[str, str, dict[str, int]]:
    """Text, finish reason and token counts of an answer of /chat/completions. Raises ScoringError."""
    try:
        document = parse_json(body)
        choice = document["choices"][0]
        content, finish = choice["message"]["content"], choice.get("finish_reason") or ""
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        start = body[:80].decode(errors="replace")
        raise ScoringError(f"the judge's answer is no chat completion: {start!r}: {error!r:.120}") from error
    if not isinstance(content, str):
        raise ScoringError(f"the judge's message has no text but {content!r:.80}")
    usage: Any = document.get("usage") or {}
    tokens = {
        name: value
        for name in ("prompt_tokens", "completion_tokens")
        if isinstance(usage, dict)
        and isinstance(value := usage.get(name), int)
        and not isinstance(value, bool)
    }
    return content, str(finish), tokens


def build_parser(options: dict[str, Any]) -> Reward:
    """Scores the text of a judge's reply, between low and high. For a child process, too: a pattern may hang."""
    read = read_options(JudgeOptions, options, reward="judge")
    return lambda reply: parse_score(reply.text, read)


def parse_score(reply: str, options: JudgeOptions) -> float:
    """Raises ScoringError for a reply in which the rule finds no score between low and high."""
    value = (
        _json_score(reply, options.field)
        if options.parse == "json"
        else _pattern_score(reply, options.pattern)
    )
    if not options.low <= value <= options.high:
        raise ScoringError(f"the score {value:g} is not between {options.low:g} and {options.high:g}")
    return value


def _json_score(reply: str, field: str) -> float:
    try:
        document = parse_json(_without_fence(reply.strip()))
    except ValueError as error:
        raise ScoringError(f"the reply is not one JSON object: {error}") from error
    if not isinstance(document, dict) or field not in document:
        raise ScoringError(f"the reply is no JSON object with {field!r}")
    if isinstance(document[field], bool):
        raise ScoringError(f"{field} must be a number, got {document[field]!r}")
    return read_number(document[field], field)


def _without_fence(text: str) -> str:
    head, newline, rest = text.partition("\n")
    if newline and head.strip() in ("```", "```json") and rest.endswith("```"):
        return rest.removesuffix("```")
    return text


def _pattern_score(reply: str, pattern: str | None) -> float:
    assert pattern is not None
    groups = re.findall(pattern, reply[-PATTERN_CHARACTERS:])
    if not groups:
        raise ScoringError(f"the pattern {pattern!r:.80} is not in the reply")
    try:
        value = float(groups[-1])
    except ValueError as error:
        raise ScoringError(f"{groups[-1]!r:.80} is no number") from error
    return read_number(value, "the score")
