"""Statistics of the columns of canonical rows: one pass, and memory that does not grow with the rows.

A column keeps at most KEPT_HASHES hashes, KEPT_VALUES values of SHOWN_CHARACTERS, and one count for each length, where
lengths above 4,096 characters are rounded. Distinct values are exact up to KEPT_HASHES and estimated above (Bar-Yossef
et al. 2002, k minimum values: the standard error is 1/sqrt(k), here 1.6 %). Frequent values are those of Misra and
Gries (1982): once a column has more than KEPT_VALUES values, a count is a lower bound.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from control_plane.assets.background.token_statistics.job import ColumnStatistics, FrequentValue, lengths_of
from control_plane.assets.background.token_statistics.lengths import hashed, rounded

COLUMNS = ("messages", "answer", "completion", "chosen", "rejected", "split", "source")
KEPT_HASHES = 4096
KEPT_VALUES = 1024
SHOWN_VALUES = 10
SHOWN_CHARACTERS = 200
_NUMBER = re.compile(r"\s*[-+]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][-+]?\d{1,4})?\s*")


def measure_columns(lines: Iterable[bytes]) -> list[ColumnStatistics]:
    """Of canonical rows as JSON lines. A column without any value, such as an unused source, is left out."""
    columns = {name: _Column() for name in COLUMNS}
    for line in lines:
        row = msgspec.json.decode(line)
        for name, column in columns.items():
            column.add(text_of(row.get(name)))
    return [column.finish(name) for name, column in columns.items() if column.present]


def text_of(value: Any) -> str:
    """What a value reads as. Chat messages are their contents, other nested values JSON; "" is a missing value."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if (
        isinstance(value, list)
        and value
        and all(isinstance(part, dict) and "content" in part for part in value)
    ):
        return "\n".join(text_of(part["content"]) for part in value)
    return msgspec.json.encode(value).decode()


class _Column:
    def __init__(self) -> None:
        self.rows = self.present = self.numeric = self.total = 0
        self.smallest, self.largest = math.inf, -math.inf
        self.lengths: dict[int, int] = {}
        self.distinct = _Distinct()
        self.frequent = _Frequent()

    def add(self, text: str) -> None:
        self.rows += 1
        if not text:
            return
        self.present += 1
        self.total += len(text)
        length = rounded(len(text))
        self.lengths[length] = self.lengths.get(length, 0) + 1
        digest = int.from_bytes(hashed(text), "big")
        self.distinct.add(digest)
        self.frequent.add(digest, text)
        if (number := number_of(text)) is not None:
            self.numeric += 1
            self.smallest, self.largest = min(self.smallest, number), max(self.largest, number)

    def finish(self, name: str) -> ColumnStatistics:
        lengths = lengths_of(self.lengths, self.total)
        return ColumnStatistics(
            name=name, rows=self.rows, missing=self.rows - self.present, distinct=self.distinct.estimate(),
            distinct_exact=self.distinct.exact, shortest=lengths.smallest, median=lengths.p50, p95=lengths.p95,
            longest=lengths.largest, mean=lengths.mean, numeric=self.numeric,
            minimum=self.smallest if self.numeric else None, maximum=self.largest if self.numeric else None,
            frequent=self.frequent.top(), frequent_exact=self.frequent.exact,
        )  # fmt: skip


def number_of(text: str) -> float | None:
    """The finite number that the text is; None for words, nan and inf."""
    if len(text) > 100 or not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


class _Distinct:
    """The KEPT_HASHES smallest hashes of all values."""

    def __init__(self) -> None:
        self.exact = True
        self._kept: set[int] = set()
        self._largest: list[int] = []  # a heap of the negated hashes

    def add(self, digest: int) -> None:
        if digest in self._kept:
            return
        if len(self._kept) < KEPT_HASHES:
            self._kept.add(digest)
            heapq.heappush(self._largest, -digest)
            return
        self.exact = False
        if digest < -self._largest[0]:
            self._kept.discard(-heapq.heapreplace(self._largest, -digest))
            self._kept.add(digest)

    def estimate(self) -> int:
        if self.exact:
            return len(self._kept)
        return round((KEPT_HASHES - 1) * 2**64 / -self._largest[0])


class _Frequent:
    """Values with their counts. When all places are taken, a new value lowers every count by one."""

    def __init__(self) -> None:
        self.exact = True
        self._counts: dict[int, int] = {}
        self._texts: dict[int, str] = {}

    def add(self, digest: int, text: str) -> None:
        if digest in self._counts:
            self._counts[digest] += 1
        elif len(self._counts) < KEPT_VALUES:
            self._counts[digest] = 1
            self._texts[digest] = text[:SHOWN_CHARACTERS].replace("\0", "\ufffd")  # PostgreSQL stores no NUL
        else:
            self.exact = False
            self._counts = {digest: count - 1 for digest, count in self._counts.items() if count > 1}
            self._texts = {digest: self._texts[digest] for digest in self._counts}

    def top(self) -> list[FrequentValue]:
        """The most frequent ones. A count of one says nothing where counts are lower bounds."""
        least = 1 if self.exact else 2
        found = [(count, self._texts[digest]) for digest, count in self._counts.items() if count >= least]
        found.sort(key=lambda pair: (-pair[0], pair[1]))
        return [FrequentValue(value=text, rows=count) for count, text in found[:SHOWN_VALUES]]
