"""Cells of a dataset row, and what is wrong with one."""

from __future__ import annotations

import json
from typing import Any

MAX_CELL_BYTES = 256 * 1024
SAMPLE_CHARACTERS = 80


class RowFault(Exception):
    def __init__(self, column: str, code: str, message: str) -> None:
        super().__init__(message)
        self.column, self.code = column, code


def check_text(value: Any, column: str, name: str, *, wanted: str) -> str:
    """The value, if it is text that can be stored and trained on. `name` begins the message of a fault."""
    if not isinstance(value, str):
        raise RowFault(column, "wrong_type", f"{name} must be {wanted}; found {sample(value)}")
    if not value.strip():
        raise RowFault(column, "empty", f"{name} is empty")
    if "\x00" in value:
        raise RowFault(column, "nul_character", f"{name} holds a NUL character: {sample(value)}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise RowFault(column, "lone_surrogate", f"{name} holds half a character at {error.start}") from error
    if size > MAX_CELL_BYTES:
        raise RowFault(
            column,
            "cell_too_large",
            f"{name} has {size} bytes, at most {MAX_CELL_BYTES}: {sample(value)}",
        )
    return value


def sample(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.strip()
    return repr(text if len(text) <= SAMPLE_CHARACTERS else text[:SAMPLE_CHARACTERS] + "…")
