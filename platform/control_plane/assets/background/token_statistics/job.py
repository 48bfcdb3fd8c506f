"""Input and output of a measuring process."""

from __future__ import annotations

from pathlib import Path

import msgspec

RESULT_FILE = "result.json"


class MeasureJob(msgspec.Struct, frozen=True, kw_only=True):
    rows: str  # path or signed URL of the canonical rows
    model: str  # of the model's tar


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """Of the texts of one kind in one split. Above 4,096 tokens a length is rounded up, by less than 2 %."""

    rows: int
    mean: float
    smallest: int
    p50: int
    p95: int
    p99: int
    largest: int
    counts: list[tuple[int, int]]  # (length, rows of it), shortest first


class FrequentValue(msgspec.Struct, frozen=True, kw_only=True):
    value: str  # its first 200 characters
    rows: int


class ColumnStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of one column of the canonical rows. Lengths are in characters, of the values that are there."""

    name: str
    rows: int
    missing: int  # null or empty
    distinct: int
    distinct_exact: bool  # False: an estimate, standard error 1.6 %
    shortest: int
    median: int
    p95: int
    longest: int
    mean: float
    numeric: int  # values that are finite numbers
    minimum: float | None  # of those; None without any
    maximum: float | None
    frequent: list[FrequentValue]  # most frequent first
    frequent_exact: bool  # False: counts are lower bounds


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    refused: str = ""  # why there are no figures
    isolation: str = ""
    vocabulary: int = 0
    prompts: dict[str, Lengths] = {}  # by split: all messages of a row, without what a chat template adds
    completions: dict[str, Lengths] = {}  # of the rows that have a demonstration
    duplicates: int = 0  # rows whose prompt and answer an earlier row had
    conflicts: int = 0  # rows whose prompt an earlier row had, with another answer
    without_completion: int = 0
    columns: list[ColumnStatistics] = []


def read_result(folder: Path) -> Measured | None:
    """None while it is not written, which happens at once and last."""
    try:
        return msgspec.json.decode((folder / RESULT_FILE).read_bytes(), type=Measured)
    except FileNotFoundError:
        return None


def lengths_of(counts: dict[int, int], total: int) -> Lengths:
    """Percentiles are lengths that occur: the smallest one that this share of the rows does not pass."""
    ordered = sorted(counts.items())
    rows = sum(counts.values())

    def percentile(share: float) -> int:
        seen = 0
        for length, count in ordered:
            seen += count
            if seen >= share * rows:
                return length
        return ordered[-1][0]

    return Lengths(
        rows=rows, mean=total / rows, smallest=ordered[0][0], p50=percentile(0.5), p95=percentile(0.95),
        p99=percentile(0.99), largest=ordered[-1][0], counts=ordered,
    )  # fmt: skip
