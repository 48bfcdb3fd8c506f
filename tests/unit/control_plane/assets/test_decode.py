"""Files of every format become JSON lines, and every bound stops at once. In process: the sandbox is elsewhere."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from control_plane.assets.background.dataset_ingest.decode import decode
from control_plane.assets.background.dataset_ingest.decoded import read_decoded
from control_plane.assets.background.dataset_ingest.job import LIMITS, format_of

ROWS = [{"q": "a", "a": 1}, {"q": "ü\nb", "a": None}]


def parquet(table: Any) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def read(data: bytes, format: str = "jsonl", compression: str = "", **changes: Any) -> tuple[list[Any], Any]:
    target = io.BytesIO()
    stop_after, filename = changes.pop("stop_after", None), changes.pop("filename", "rows.x")
    common = {
        "format": format, "compression": compression, "limits": {**LIMITS, **changes}, "stop_after": stop_after,
        "filename": filename,
    }  # fmt: skip
    found = decode(io.BufferedReader(io.BytesIO(data)), target, common)  # type: ignore[arg-type]
    assert found["decoded_bytes"] == len(target.getvalue())
    decoded = read_decoded(io.BytesIO(target.getvalue()))
    return [
        (row.place, row.fault.code, str(row.fault)) if row.fault else (row.place, json.loads(row.data))
        for row in decoded
    ], found


def test_what_no_decoder_wrote_is_not_taken_for_rows() -> None:
    for line in (b"no place\n", b'!{"code": "x", "message": "y"}\n', b"12\n", b"\n"):
        with pytest.raises(ValueError, match="which is no row"):
            list(read_decoded(io.BytesIO(line)))


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
    assert (rows, found["refused"], found["rows"]) == (list(enumerate(ROWS, 1)), None, 2)


def test_csv_cells_are_text_and_may_hold_lines() -> None:
    rows, found = read('\ufeffq,a\na,1\n"ü\nb",\n\n'.encode(), "csv")
    assert (rows, found["refused"]) == ([(2, {"q": "a", "a": "1"}), (3, {"q": "ü\nb", "a": ""})], None)
    assert found["delimiter"] == ","


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
        (b"a\n" + b"x" * 50, "csv", "", {"cell_bytes": 40}, "cell_too_large"),
        (b'a\n"open', "csv", "", {}, "unreadable"),
        (b"\xff\na\n", "csv", "", {}, "not_utf8"),
        (b"{\n" + LINES, "jsonl", "", {}, "json_over_lines"),
        (b"[]\n" + LINES, "jsonl", "", {}, "json_array"),
        (gzip.compress(LINES)[:-9], "jsonl", "gzip", {}, "unreadable"),
        (gzip.compress(LINES)[:20] + b"x" * 40, "jsonl", "gzip", {}, "unreadable"),
        (pyarrow.compress(LINES, codec="zstd", asbytes=True)[:-9], "jsonl", "zstd", {}, "unreadable"),
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
    assert (rows, found["refused"]) == (list(enumerate(ROWS, 1)), None)


CSV_ROWS = 'q;a\r\n"line one\nline, two";1\r\n\r\nshort\r\n"x;y";2\r\n'


def test_every_csv_row_has_the_line_that_it_begins_on_and_a_ragged_one_is_a_fault_of_its_own() -> None:
    rows, found = read(CSV_ROWS.encode(), "csv")
    assert found["refused"] is None and found["delimiter"] == ";"
    assert rows[0] == (2, {"q": "line one\nline, two", "a": "1"}) and rows[2] == (6, {"q": "x;y", "a": "2"})
    place, code, message = rows[1]
    assert (place, code) == (5, "wrong_cells")
    assert "has 1 cells, the first line names 2 columns, with semicolons between" in message


@pytest.mark.parametrize(
    ("delimiter", "first"), [(",", "q,a"), (";", "q;a"), ("\t", "q\ta"), ("|", '"q;,"|a')]
)
def test_what_separates_cells_is_what_the_first_line_has_outside_of_quotes(
    delimiter: str, first: str
) -> None:
    rows, found = read(f"{first}\n1{delimiter}2\n".encode(), "csv")
    assert (found["delimiter"], list(rows[0][1].values())) == (delimiter, ["1", "2"])


def test_a_byte_order_mark_and_windows_line_ends_change_nothing() -> None:
    data = b"\xef\xbb\xbf" + LINES.replace(b"\n", b"\r\n") + b"\r\n\r\n"
    assert read(data)[0] == list(enumerate(ROWS, 1))


def test_an_empty_line_between_rows_is_a_fault_with_its_line() -> None:
    rows, _ = read(b'{"q": 1}\n\n{"q": 2}\n\n\n')
    assert rows == [(1, {"q": 1}), (2, "not_json", "the line is empty; delete it"), (3, {"q": 2})]


@pytest.mark.parametrize(("format", "place"), [("jsonl", 1), ("csv", 2)])
def test_latin_1_is_a_fault_of_each_row_that_has_it_and_the_way_works_as_typed(
    format: str, place: int, tmp_path: Path
) -> None:
    text = '{"q": "é"}\n{"q": "e"}\n' if format == "jsonl" else "q\né\ne\n"
    filename = f"my rows.{format}"
    (tmp_path / filename).write_bytes(text.encode("latin-1"))
    (where, code, message), good = read(text.encode("latin-1"), format, filename=filename)[0]
    assert (where, code, good[1]) == (place, "not_utf8", {"q": "e"})
    subprocess.run(["bash", "-ec", message.partition("convert it: ")[2]], check=True, cwd=tmp_path)
    assert (tmp_path / f"my rows.utf8.{format}").read_text() == text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_utf_16_is_named_and_the_way_works_as_typed(format: str, encoding: str, tmp_path: Path) -> None:
    data = "q,a\n1,2\n".encode(encoding)
    (tmp_path / f"rows.{format}").write_bytes(data)
    refused = read(data, format, filename=f"rows.{format}")[1]["refused"]
    assert refused["code"] == "not_utf8"
    subprocess.run(["bash", "-ec", refused["message"].partition("Convert it: ")[2]], check=True, cwd=tmp_path)
    assert (tmp_path / f"rows.utf8.{format}").read_text(encoding="utf-8-sig") == "q,a\n1,2\n"


@pytest.mark.parametrize(("filename", "compression"), [("it's rows.json", ""), ("rows.json.gz", "gzip")])
def test_a_json_array_is_named_and_the_way_works_as_typed(
    filename: str, compression: str, tmp_path: Path
) -> None:
    data = json.dumps(ROWS, indent=1).encode()
    data = gzip.compress(data) if compression else data
    (tmp_path / filename).write_bytes(data)
    refused = read(data, "jsonl", compression, filename=filename)[1]["refused"]
    assert refused["code"] == "json_array"
    subprocess.run(["bash", "-ec", refused["message"].partition("Convert it: ")[2]], check=True, cwd=tmp_path)
    [made] = tmp_path.glob("*.lines.jsonl")
    assert read(made.read_bytes())[0] == list(enumerate(ROWS, 1))


@pytest.mark.parametrize(
    ("data", "format", "compression", "says"),
    [
        (parquet(pyarrow.table({"a": [1]})), "csv", "", "a Parquet file: let its name end in .parquet"),
        (gzip.compress(LINES), "jsonl", "", "let its name end in .gz"),
        (gzip.compress(gzip.compress(LINES)), "jsonl", "gzip", "let its name end in .gz"),
        (pyarrow.compress(LINES, codec="zstd", asbytes=True), "parquet", "", "let its name end in .zst"),
        (b"PK\x03\x04rest", "csv", "", "export the sheet as CSV"),
        (LINES, "jsonl", "gzip", "take that ending off its name"),
        (b"q;a\n1;2\n", "jsonl", "", "If it is CSV, let its name end in .csv"),
    ],
)
def test_file_with_a_wrong_extension_is_rejected_with_its_format(
    data: bytes, format: str, compression: str, says: str
) -> None:
    refused = read(data, format, compression)[1]["refused"]
    assert refused["code"] == "wrong_format" and says in refused["message"]


@pytest.mark.parametrize(
    ("data", "says"),
    [(b"", "the file is empty"), (b"\nq,a\n", "line 1 is empty"), (b"q,a\n", "no rows"),
     (b'q\n1\n"open\n2\n', "line 3: a cell begins with"), (b'q\n"a" b\n', "line 2: after the")],
)  # fmt: skip
def test_a_csv_without_rows_or_with_a_lost_quote_says_so(data: bytes, says: str) -> None:
    assert says in read(data, "csv")[1]["refused"]["message"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.jsonl", ("jsonl", "")), ("a.json.gz", ("jsonl", "gzip")), ("a.CSV", ("csv", "")), ("a", ("jsonl", "")),
     ("a.v2.csv.zst", ("csv", "zstd")), ("a.parquet", ("parquet", "")), ("a.gz", ("jsonl", "gzip"))],
)  # fmt: skip
def test_the_name_says_the_format(name: str, expected: tuple[str, str]) -> None:
    assert format_of(name) == expected
