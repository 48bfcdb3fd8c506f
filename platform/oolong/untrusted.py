"""Bounds for what comes from code of users and from the policy: JSON and strings that every reader and store takes.

PostgreSQL keeps no NUL, UTF-8 has no lone surrogate, JSON no NaN, and a recursive reader dies of deep nesting. Check
where such a value is read, so that nothing behind it fails by it.
"""

from __future__ import annotations

import json
import math
from typing import Any

MAX_DEPTH = 64  # levels of lists and objects
LABEL_CHARACTERS = 60
MESSAGE_CHARACTERS = 2000


def parse_json(text: str | bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """Parse JSON that can be encoded again.

    Raise ValueError for what is none, for NaN and infinities, lone surrogates, and more than `max_depth` levels.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as error:
        raise ValueError(f"nested more than {max_depth} levels deep") from error
    _check_depth(value, max_depth)
    if (rb"\u" if isinstance(text, bytes) else r"\u") in text:  # type: ignore[operator]
        json.dumps(value, ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large for a number")
    return number


def _check_depth(value: Any, max_depth: int) -> None:
    level = [value] if isinstance(value, dict | list) else []  # the containers of one depth
    for _ in range(max_depth):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    if level:
        raise ValueError(f"nested more than {max_depth} levels deep")


def clean_text(text: str, *, max_characters: int = MESSAGE_CHARACTERS) -> str:
    """Return the text cut to its length, with U+FFFD for NUL and for each lone surrogate."""
    if len(text) > max_characters:
        text = f"{text[: max_characters - 1]}…"
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def label_error(label: object) -> str:
    """Say why a name must not become a label of a metric or a document; "" when it may."""
    if not isinstance(label, str) or not label:
        return "a label is a text that is not empty"
    if len(label) > LABEL_CHARACTERS:
        return f"a label has at most {LABEL_CHARACTERS} characters, this one has {len(label)}"
    if not label.isprintable():  # neither NUL, nor a line break, nor a lone surrogate
        return "a label has printable characters only"
    return ""
