"""The words in which every error of a field is said: by the RunSpec, by request bodies of the API, and by options."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sized
from typing import Any, Literal

BoundWords = Literal["at least", "at most", "greater than", "less than", "a multiple of"]

_LONGEST_VALUE_SHOWN = 60
_PLURALS = {"character": "characters", "entry": "entries"}

MUST_BE = {
    "integer": "must be a whole number", "number": "must be a number", "boolean": "must be true or false",
    "text": "must be text", "list": "must be a list", "object": "must be an object",
    "time": "must be a time such as 2026-01-31T12:00:00Z",
}  # fmt: skip


def must_be(expected: str, value: Any) -> str:
    """`must be a whole number; it is 'x'`."""
    return f"{expected}; it is {shown(value)}"


def bound(words: BoundWords, limit: float, value: Any) -> str:
    return must_be(f"must be {words} {f'{limit:g}' if isinstance(limit, float) else limit}", value)


def size(words: BoundWords, limit: int, unit: str, value: Any) -> str:
    """`must have at most 120 characters; it has 5000`."""
    has = f"; it has {len(value)}" if isinstance(value, Sized) else ""
    return f"must have {words} {limit} {unit if limit == 1 else _PLURALS[unit]}{has}"


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing when no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f"; did you mean {near[0]!r}?" if near else ""


def shown(value: Any) -> str:
    """A value as it stands in a message: never longer than a line, and `true` rather than `True`."""
    text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else repr(value)
    text = "null" if value is None else str(text)
    return text if len(text) <= _LONGEST_VALUE_SHOWN else f"{text[:_LONGEST_VALUE_SHOWN]}…"
