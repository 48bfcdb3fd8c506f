"""The program that reads a file of a user: JSON lines, CSV or Parquet in, JSON lines out, everything counted.

It runs in the sandbox, by its text: standard library, and pyarrow where the format needs it. Input is standard
input, output standard output, both files. What it reports is a small document, read by `run`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from typing import Any, BinaryIO

CHUNK = 1024 * 1024
PARQUET_BATCH_ROWS = 256


class Refused(Exception):
    """The file passes a bound, or is not what it is said to be."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Counter:
    """Writes rows, and stops at the first bound that is passed."""

    def __init__(self, target: BinaryIO, limits: dict[str, int], stop_after: int | None) -> None:
        self._target, self._limits, self._stop_after = target, limits, stop_after
        self.rows = self.bytes = 0

    @property
    def has_enough(self) -> bool:
        return self._stop_after is not None and self.rows >= self._stop_after

    def line(self, line: bytes) -> None:
        if self.rows >= self._limits["rows"]:
            raise Refused("too_many_rows", f"more than {self._limits['rows']} rows")
        if self.bytes + len(line) > self._limits["decoded_bytes"]:
            raise Refused(
                "decoded_too_large",
                f"row {self.rows + 1}: decoded, the file has more than {self._limits['decoded_bytes']} bytes",
            )
        self.rows += 1
        self.bytes += len(line)
        self._target.write(line)

    def row(self, row: dict[str, Any]) -> None:
        self.line(
            json.dumps(row, ensure_ascii=False, default=_plain).encode("utf-8", "surrogatepass") + b"\n"
        )

    def check_columns(self, names: list[str]) -> None:
        if len(names) > self._limits["columns"]:
            raise Refused("too_many_columns", f"{len(names)} columns, at most {self._limits['columns']}")
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise Refused("column_twice", f"the column {twice!r} is there twice")

    def check_cell(self, size: int, column: str) -> None:
        if size > self._limits["cell_bytes"]:
            raise Refused(
                "cell_too_large",
                f"column {column!r} has a cell of {size} bytes, at most {self._limits['cell_bytes']}",
            )


def decode(source: BinaryIO, target: BinaryIO, common: dict[str, Any]) -> dict[str, Any]:
    """Counters, and what was refused. `common`: format, compression, limits, stop_after."""
    counter = Counter(target, common["limits"], common["stop_after"])
    refused = None
    try:
        _FORMATS[common["format"]](_plain_bytes(source, common["compression"]), counter, common["limits"])
    except Refused as error:
        refused = {"code": error.code, "message": str(error)}
    except (OSError, EOFError, ValueError, csv.Error) as error:  # what the readers raise for a damaged file
        refused = {
            "code": "unreadable",
            "message": _why(common["format"], counter.rows, error)[:500],
        }
    target.flush()
    return {"rows": counter.rows, "decoded_bytes": counter.bytes, "refused": refused}


def _why(format: str, rows: int, error: Exception) -> str:
    said = str(error).partition("\n")[0]
    if format == "parquet" and not rows:
        return f"this is no Parquet file, or it is damaged or cut short; write it anew and upload it again ({said})"
    if isinstance(error, EOFError):
        return f"after row {rows} the compressed file ends in its middle; upload it again ({said})"
    return f"row {rows + 1}: {said or type(error).__name__}"


def _plain_bytes(source: BinaryIO, compression: str) -> BinaryIO:
    if compression == "gzip":
        return gzip.GzipFile(fileobj=source)  # type: ignore[return-value]
    if compression == "zstd":
        import pyarrow

        stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(source, mode="r"), "zstd")
        return io.BufferedReader(stream, CHUNK)
    return source


def _json_lines(source: BinaryIO, counter: Counter, limits: dict[str, int]) -> None:
    """Lines as they are: what is wrong inside one is told later, with its line."""
    longest = limits["line_bytes"]
    while line := source.readline(longest + 1):
        if len(line) > longest and not line.endswith(b"\n"):
            raise Refused("line_too_large", f"line {counter.rows + 1} is longer than {longest} bytes")
        counter.line(line if line.endswith(b"\n") else line + b"\n")
        if counter.has_enough:
            return


def _csv(source: BinaryIO, counter: Counter, limits: dict[str, int]) -> None:
    csv.field_size_limit(limits["cell_bytes"])
    text = io.TextIOWrapper(source, encoding="utf-8-sig", newline="")  # type: ignore[type-var]
    reader = csv.reader(text, strict=True)
    names = next(reader, [])
    counter.check_columns(names)
    for cells in reader:
        if not cells:
            continue  # an empty line is no row
        if len(cells) != len(names):
            raise Refused(
                "wrong_cells",
                f"line {reader.line_num} has {len(cells)} cells, the first line names {len(names)}",
            )
        counter.row(dict(zip(names, cells, strict=True)))
        if counter.has_enough:
            return


def _parquet(source: BinaryIO, counter: Counter, limits: dict[str, int]) -> None:
    """In small batches. Text stays dictionary-encoded, so a value repeated a million times is measured once."""
    import pyarrow
    import pyarrow.compute
    import pyarrow.parquet

    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    schema = pyarrow.parquet.read_schema(source)
    counter.check_columns(schema.names)
    texts = [
        field.name
        for field in schema
        if pyarrow.types.is_string(field.type) or pyarrow.types.is_large_string(field.type)
    ]
    file = pyarrow.parquet.ParquetFile(source, read_dictionary=texts, pre_buffer=False)
    for batch in file.iter_batches(batch_size=PARQUET_BATCH_ROWS, use_threads=False):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            values = column.dictionary if pyarrow.types.is_dictionary(column.type) else column
            if pyarrow.types.is_string(values.type) or pyarrow.types.is_binary(values.type):
                longest = pyarrow.compute.max(pyarrow.compute.binary_length(values)).as_py()
                counter.check_cell(longest or 0, name)
        for row in batch.to_pylist():
            counter.row(row)
            if counter.has_enough:
                return


def _plain(value: Any) -> str:
    """Dates, decimals and bytes as text; a mapping that wants them says what they mean."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


_FORMATS = {"jsonl": _json_lines, "csv": _csv, "parquet": _parquet}

if "report" in globals():  # given by the sandbox
    _buffered = io.BufferedWriter(io.FileIO(1, "wb", closefd=False), CHUNK)
    report(decode(io.BufferedReader(io.FileIO(0, "rb", closefd=False), CHUNK), _buffered, common))  # type: ignore[name-defined]  # noqa: F821
