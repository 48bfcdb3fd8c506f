"""Files of users are decoded in the real sandbox: the very process that a validation starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow
import pyarrow.parquet
import pytest

from control_plane.assets.background import JOB_FILE
from control_plane.assets.background.dataset_ingest.job import ParseJob, ParseResult, read_result
from tests.sandbox.conftest import run_reader

MAPPING = {"prompt_column": "q", "answer_column": "a"}
ROWS = [{"q": "a", "a": 1}, {"q": "b", "a": 2}]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


def parse(
    folder: Path, checkout: Path, data: bytes, format: str = "jsonl", compression: str = ""
) -> ParseResult:
    source = folder / "upload"
    source.write_bytes(data)
    job = ParseJob(
        source=str(source), format=format, compression=compression, mapping=MAPPING, stop_after=None
    )
    (folder / JOB_FILE).write_bytes(msgspec.json.encode(job))
    run_reader("control_plane.assets.background.dataset_ingest", folder, checkout)
    result = read_result(folder)
    assert result is not None
    return result


def parquet(path: Path, table: Any) -> bytes:
    pyarrow.parquet.write_table(table, path, compression="zstd")
    return path.read_bytes()


def test_every_format_gives_the_same_rows_by_the_sandbox(tmp_path: Path, checkout: Path) -> None:
    table = parquet(tmp_path / "rows.parquet", pyarrow.Table.from_pylist(ROWS))
    zstd = pyarrow.compress(LINES, codec="zstd", asbytes=True)
    found = [
        parse(tmp_path, checkout, data, format, compression)
        for data, format, compression in (
            (LINES, "jsonl", ""),
            (table, "parquet", ""),
            (zstd, "jsonl", "zstd"),
        )
    ]
    assert {result.isolation for result in found} == {"sandbox"}
    assert [result.splits for result in found] == [{"train": 2}] * 3
    assert len({result.canonical_sha256 for result in found}) == 1


def test_a_kilobyte_that_decodes_to_a_terabyte_is_refused(tmp_path: Path, checkout: Path) -> None:
    column = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0] * 100_000, pyarrow.int32()), ["x" * 10_000_000]
    )
    data = parquet(tmp_path / "bomb.parquet", pyarrow.table({"q": column}))
    assert len(data) < 1500
    result = parse(tmp_path, checkout, data, "parquet")
    assert result.refused is not None and result.refused["code"] == "cell_too_large"


def test_values_that_only_the_memory_bound_can_stop_are_refused_by_it(tmp_path: Path, checkout: Path) -> None:
    """A list of two hundred million numbers in one cell: no text to measure."""
    numbers = pyarrow.array([0] * 1_000_000, pyarrow.int64())
    repeated = pyarrow.chunked_array([numbers] * 200).combine_chunks()
    cell = pyarrow.ListArray.from_arrays([0, len(repeated)], repeated)
    data = parquet(tmp_path / "wide.parquet", pyarrow.table({"q": cell}))
    assert len(data) < 2_000_000
    result = parse(tmp_path, checkout, data, "parquet")
    assert result.refused is not None
    assert result.refused["code"] in ("memory_limit", "unreadable"), result.refused


@pytest.mark.parametrize(("format", "code"), [("parquet", "unreadable"), ("csv", "not_utf8")])
def test_garbage_is_rejected_with_its_reason(tmp_path: Path, checkout: Path, format: str, code: str) -> None:
    result = parse(tmp_path, checkout, b"\x00\xff" * 500, format)
    assert result.refused is not None and result.refused["code"] == code, result.refused
