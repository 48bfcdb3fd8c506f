"""What is to be known of rows before anybody trains on them: columns, duplicates, leaks between splits."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import msgspec

from control_plane.catalog import rows
from oolong.contracts.attempt import CanonicalRow

MAX_COLUMNS = 200
SAMPLE_ROWS = 20
SAMPLE_BYTES = 4_000  # of each of them, as JSON: a row may have megabytes
_NAMES = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "object"}


class Survey:
    """Told every row once. Prompts are remembered by 8 bytes of their hash."""

    def __init__(self) -> None:
        self.rows = 0
        self.sample: list[dict[str, Any]] = []
        self.rendered: list[dict[str, Any]] = []
        self.duplicates = 0
        self.leaks: Counter[str] = Counter()
        self._types: dict[str, set[str]] = {}
        self._present: Counter[str] = Counter()
        self._first_split: dict[bytes, str] = {}
        self._characters = [0, 0, 0]  # smallest, sum, largest prompt

    def see_raw(self, row: dict[str, Any]) -> None:
        self.rows += 1
        if len(self.sample) < SAMPLE_ROWS:
            self.sample.append(_shown(row))
        for column, value in row.items():
            if column not in self._types and len(self._types) >= MAX_COLUMNS:
                continue
            known = self._types.setdefault(column, set())
            if value is not None:
                known.add(_NAMES[type(value)])
                self._present[column] += 1

    def see(self, raw: dict[str, Any], row: CanonicalRow) -> None:
        self.see_raw(raw)
        if len(self.rendered) < SAMPLE_ROWS:
            self.rendered.append(
                _shown(
                    {
                        "messages": row.messages,
                        "answer": row.answer,
                        "completion": row.completion,
                        "split": row.split,
                    }
                )
            )
        size = len(row.messages[-1]["content"])
        smallest, total, largest = self._characters
        self._characters = [min(smallest or size, size), total + size, max(largest, size)]
        key = hashlib.blake2b(msgspec.json.encode(row.messages), digest_size=8).digest()
        first = self._first_split.setdefault(key, row.split)
        if len(self._first_split) != self.rows - self.duplicates:
            self.duplicates += 1
            if first != row.split:
                self.leaks[f"{row.split} in {first}"] += 1

    def columns(self) -> list[dict[str, Any]]:
        return [
            {
                "name": rows.presentable(name),
                "type": " or ".join(sorted(types)) or "null",
                "missing": self.rows - self._present[name],
            }
            for name, types in self._types.items()
        ]

    def prompt_characters(self) -> dict[str, float]:
        smallest, total, largest = self._characters
        return {"min": smallest, "mean": total / self.rows, "max": largest} if self.rendered else {}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it can be kept, its values cut further and further until the whole is small."""
    for most in (SAMPLE_BYTES, 400, 40):
        shown: dict[str, Any] = rows.presentable(row, most=most)
        if len(msgspec.json.encode(shown)) <= SAMPLE_BYTES:
            return shown
    return dict.fromkeys(list(shown)[:MAX_COLUMNS], "…")
