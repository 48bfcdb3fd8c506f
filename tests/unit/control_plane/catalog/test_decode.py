"""Files of every format become JSON lines, and every bound stops at once. In process: the sandbox is elsewhere."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from control_plane.catalog.parsing.decode import decode
from control_plane.catalog.parsing.job import LIMITS, format_of

ROWS = [{"q": "a", "a": 1}, {"q": "ü\nb", "a": None}]


def parquet(table: Any) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def read(data: bytes, format: str = "jsonl", compression: str = "", **changes: Any) -> tuple[list[Any], Any]:
    target = io.BytesIO()
    stop_after = changes.pop("stop_after", None)
    common = {
        "format": format, "compression": compression, "limits": {**LIMITS, **changes}, "stop_after": stop_after,
    }  # fmt: skip
    found = decode(io.BufferedReader(io.BytesIO(data)), target, common)  # type: ignore[arg-type]
    assert found["decoded_bytes"] == len(target.getvalue())
    return [json.loads(line) for line in target.getvalue().splitlines()], found


LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


@pytest.mark.parametrize(
    ("data", "format", "compression"),
    [
        (LINES, "jsonl", ""),
        (LINES.rstrip(b"\n"), "jsonl", ""),
        (gzip.compress(LINES), "jsonl", "gzip"),
        (pyarrow.compress(LINES, codec="zstd", asbytes=True), "jsonl", "zstd"),
        (parquet(pyarrow.Table.from_pylist(ROWS)), "parquet", ""),
    ],
)
def test_every_format_gives_the_same_rows(data: bytes, format: str, compression: str) -> None:
    rows, found = read(data, format, compression)
    assert (rows, found["refused"], found["rows"]) == (ROWS, None, 2)


def test_csv_cells_are_text_and_may_hold_lines() -> None:
    rows, found = read('\ufeffq,a\na,1\n"ü\nb",\n\n'.encode(), "csv")
    assert (rows, found["refused"]) == ([{"q": "a", "a": "1"}, {"q": "ü\nb", "a": ""}], None)


def bomb() -> bytes:
    """A value of 10 MB, named a hundred thousand times by a dictionary: 1 TB decoded."""
    column = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0] * 100_000, pyarrow.int32()), ["x" * 10_000_000]
    )
    return parquet(pyarrow.table({"q": column}))


def test_a_parquet_of_a_kilobyte_that_decodes_to_a_terabyte_is_refused() -> None:
    data = bomb()
    assert len(data) < 1500
    rows, found = read(data, "parquet")
    assert (rows, found["refused"]["code"]) == ([], "cell_too_large")


@pytest.mark.parametrize(
    ("data", "format", "compression", "limits", "code"),
    [
        (LINES, "jsonl", "", {"rows": 1}, "too_many_rows"),
        (LINES, "jsonl", "", {"decoded_bytes": 20}, "decoded_too_large"),
        (b"x" * 100, "jsonl", "", {"line_bytes": 99}, "line_too_large"),
        (gzip.compress(b"0" * 1_000_000), "jsonl", "gzip", {"line_bytes": 1000}, "line_too_large"),
        (b"a,b,c\n1,2,3\n", "csv", "", {"columns": 2}, "too_many_columns"),
        (b"a,a\n1,2\n", "csv", "", {}, "column_twice"),
        (b"a,b\n1\n", "csv", "", {}, "wrong_cells"),
        (b"a\n" + b"x" * 50, "csv", "", {"cell_bytes": 40}, "unreadable"),
        (b'a\n"open', "csv", "", {}, "unreadable"),
        (b"a\n\xff\n", "csv", "", {}, "unreadable"),
        (gzip.compress(LINES)[:-9], "jsonl", "gzip", {}, "unreadable"),
        (LINES, "jsonl", "gzip", {}, "unreadable"),
        (LINES, "jsonl", "zstd", {}, "unreadable"),
        (LINES, "parquet", "", {}, "unreadable"),
        (parquet(pyarrow.table({"q": ["a" * 100]})), "parquet", "", {"cell_bytes": 99}, "cell_too_large"),
        (
            parquet(pyarrow.table({"q": [["a" * 9] * 9]})),
            "parquet",
            "",
            {"decoded_bytes": 50},
            "decoded_too_large",
        ),
        (parquet(pyarrow.table({"a": [1], "b": [1]})), "parquet", "", {"columns": 1}, "too_many_columns"),
        (parquet(pyarrow.table({"a": [1]}))[:-20], "parquet", "", {}, "unreadable"),
    ],
)
def test_a_file_over_a_bound_or_damaged_is_refused_by_its_code(
    data: bytes, format: str, compression: str, limits: dict[str, int], code: str
) -> None:
    _, found = read(data, format, compression, **limits)
    assert found["refused"] is not None and found["refused"]["code"] == code, found


def test_first_rows_are_read_without_the_rest() -> None:
    rows, found = read(LINES + b"\xff" * 10_000, stop_after=2, line_bytes=1000)
    assert (rows, found["refused"]) == (ROWS, None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.jsonl", ("jsonl", "")), ("a.json.gz", ("jsonl", "gzip")), ("a.CSV", ("csv", "")), ("a", ("jsonl", "")),
     ("a.v2.csv.zst", ("csv", "zstd")), ("a.parquet", ("parquet", "")), ("a.gz", ("jsonl", "gzip"))],
)  # fmt: skip
def test_the_name_says_the_format(name: str, expected: tuple[str, str]) -> None:
    assert format_of(name) == expected
