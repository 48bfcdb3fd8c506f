"""What one should know about rows before training on them: columns, duplicates, conflicts, leaks between splits."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from typing import Any

import msgspec

from control_plane.assets.datasets import rows
from oolong.contracts.attempt import CanonicalRow

MAX_COLUMNS = 200
SAMPLE_ROWS = 20
SAMPLE_BYTES = 4_000  # of each of them, as JSON: a row may have megabytes
CONFLICTS_SHOWN = 20
_NAMES = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "object"}


class ColumnProfiler:
    """Sees every row once. Prompts and answers are remembered by 8 bytes of their hashes."""

    def __init__(self) -> None:
        self.rows = 0
        self.sample: list[dict[str, Any]] = []
        self.rendered: list[dict[str, Any]] = []
        self.duplicates = 0  # rows whose prompt and answer, or prompt and pair, an earlier row had
        self.conflicts = 0  # rows whose prompt an earlier row had with another answer or the pair reversed
        self.first_conflicts: list[tuple[int, int]] = []  # the first of them: row, and the earlier row
        self.leaks: Counter[str] = Counter()
        self._types: dict[str, set[str]] = {}
        self._present: Counter[str] = Counter()
        self._first: dict[bytes, int] = {}  # of each prompt: where the three below have its first row
        self._first_row, self._first_split, self._first_answer = array("q"), array("q"), array("q")
        self._pairs: dict[bytes, int] = {}  # the first row of each prompt with its pair
        self._splits: dict[str, int] = {}
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
                        "chosen": None if row.chosen is msgspec.UNSET else row.chosen,
                        "rejected": None if row.rejected is msgspec.UNSET else row.rejected,
                        "split": row.split,
                        "source": row.source,
                    }
                )
            )
        size = len(row.messages[-1]["content"])
        smallest, total, largest = self._characters
        self._characters = [min(smallest or size, size), total + size, max(largest, size)]
        self._compare(row)
        self._compare_pair(row)

    def _compare(self, row: CanonicalRow) -> None:
        """With the first row that has the same prompt."""
        split = self._splits.setdefault(row.split, len(self._splits))
        answer = int.from_bytes(_hash(row.answer.encode()), "big", signed=True)
        first = self._first.setdefault(_hash(msgspec.json.encode(row.messages)), len(self._first))
        if first == len(self._first_row):
            self._first_row.append(row.row)
            self._first_split.append(split)
            self._first_answer.append(answer)
            return
        if self._first_split[first] != split:
            self.leaks[f"{row.split} in {list(self._splits)[self._first_split[first]]}"] += 1
        if row.chosen is not msgspec.UNSET:
            return  # several pairs may have one prompt
        if self._first_answer[first] == answer:
            self.duplicates += 1
        else:
            self._add_conflict(row.row, self._first_row[first])

    def _compare_pair(self, row: CanonicalRow) -> None:
        """With the first row that has the same prompt and pair: the same way round, or the other."""
        if row.chosen is msgspec.UNSET:
            return
        known, reverse = (
            _hash(msgspec.json.encode((row.messages, *pair)))
            for pair in ((row.chosen, row.rejected), (row.rejected, row.chosen))
        )
        if known in self._pairs:
            self.duplicates += 1
        elif reverse in self._pairs:
            self._add_conflict(row.row, self._pairs[reverse])
        self._pairs.setdefault(known, row.row)

    def _add_conflict(self, row: int, earlier: int) -> None:
        self.conflicts += 1
        if len(self.first_conflicts) < CONFLICTS_SHOWN:
            self.first_conflicts.append((row, earlier))

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


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it can be kept, its values cut further and further until the whole is small."""
    for most in (SAMPLE_BYTES, 400, 40):
        shown: dict[str, Any] = rows.presentable(row, most=most)
        if len(msgspec.json.encode(shown)) <= SAMPLE_BYTES:
            return shown
    return dict.fromkeys(list(shown)[:MAX_COLUMNS], "…")
