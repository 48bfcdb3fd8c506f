"""Request and answer of a reward over HTTP, version 1. Pure.

POST {"version": 1, "items": [{"id", "prompt", "completion", "answer", "row", "finish_reason", "purpose"}]} is answered
with {"version": 1, "items": [{"id", "score", "parts"?, "text"?} or {"id", "error"}]}, each id once, in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_agents.rewards.reported_score import read_number, read_parts
from gpu_agents.rewards.reward import Completion, Score, ScoringError
from oolong.untrusted import clean_text, parse_json

VERSION = 1
MESSAGE_CHARACTERS = 600


def request_document(items: Mapping[str, Completion]) -> dict[str, Any]:
    """`items` by id."""
    return {
        "version": VERSION,
        "items": [
            {
                "id": identity,
                "prompt": completion.prompt,
                "completion": completion.text,
                "answer": completion.answer,
                "row": completion.row,
                "finish_reason": completion.finish_reason,
                "purpose": completion.purpose,
            }
            for identity, completion in items.items()
        ],
    }


def read_answer(body: bytes, items: Mapping[str, Completion]) -> dict[str, Score | ScoringError]:
    """Of each id, its score or why it has none. Raises ScoringError for an answer of which no item can be trusted."""
    try:
        document = parse_json(body)
    except ValueError as error:
        raise ScoringError(f"the answer is no JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("items"), list):
        raise ScoringError("the answer must be an object with a list of items")
    if document.get("version") != VERSION:
        raise ScoringError(f"the answer has version {document.get('version')!r:.40}; it must be {VERSION}")
    found: dict[str, dict[str, Any]] = {}
    for item in document["items"]:
        identity = item.get("id") if isinstance(item, dict) else None
        if not isinstance(identity, str) or identity not in items:
            raise ScoringError(f"the answer has the id {identity!r:.80}, which was not asked")
        if identity in found:
            raise ScoringError(f"the answer has the id {identity!r} twice")
        found[identity] = item
    if missing := [identity for identity in items if identity not in found]:
        raise ScoringError(f"the answer lacks {len(missing)} of {len(items)} ids, {missing[0]!r} among them")
    return {identity: _result(item) for identity, item in found.items()}


def _result(item: dict[str, Any]) -> Score | ScoringError:
    error, text = item.get("error"), item.get("text", "")
    if error is not None:
        return ScoringError(
            clean_text(f"the service gives no score: {error}", max_characters=MESSAGE_CHARACTERS)
        )
    if not isinstance(text, str):
        return ScoringError(f"text must be a text, got {text!r:.80}")
    try:
        return Score(
            value=read_number(item.get("score"), "score"), parts=read_parts(item), text=clean_text(text)
        )
    except ScoringError as wrong:
        return wrong
