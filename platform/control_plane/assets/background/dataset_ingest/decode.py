"""The program that reads a file of a user: JSON lines, CSV or Parquet in, decoded rows out, everything counted.

It runs in the sandbox, by its text: standard library, and pyarrow where the format needs it. Input is standard
input, output standard output, both files. What it reports is a small document, read by `run`.

Each line of the output is the line of the file that the row begins on (for Parquet the number of the row, from 1), a
space and the row as JSON; or, for a row that cannot be read, `!` and a JSON object with code and message. The other
side is `control_plane.assets.background.dataset_ingest.decoded`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shlex
import zlib
from typing import Any, BinaryIO

CHUNK = 1024 * 1024
HEAD_BYTES = 4096
PARQUET_BATCH_ROWS = 256
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
UTF8_BOM = b"\xef\xbb\xbf"
# What a file begins with, what it is then, and what to do.
MAGIC = (
    (b"PAR1", "parquet", "a Parquet file: let its name end in .parquet"),
    (b"\x1f\x8b", "gzip", "compressed by gzip: let its name end in .gz, as rows.jsonl.gz"),
    (b"\x28\xb5\x2f\xfd", "zstd", "compressed by zstd: let its name end in .zst, as rows.jsonl.zst"),
    (b"PK\x03\x04", "zip", "a ZIP archive, as .xlsx files are too: unpack it, or export the sheet as CSV"),
)
JSON_ARRAY_TO_LINES = (
    "python3 -c 'import json, sys; [print(json.dumps(row)) for row in json.load(sys.stdin)]'"
)


class Refused(Exception):
    """The file exceeds a limit, or is not what its name says."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class LimitEnforcer:
    """Writes rows, and stops at the first limit that is exceeded."""

    def __init__(self, target: BinaryIO, limits: dict[str, int], stop_after: int | None) -> None:
        self._target, self._limits, self._stop_after = target, limits, stop_after
        self.rows = self.bytes = 0
        self.delimiter = ""  # of CSV

    @property
    def has_enough(self) -> bool:
        return self._stop_after is not None and self.rows >= self._stop_after

    def line(self, place: int, line: bytes, *, mark: bytes = b" ") -> None:
        """One row, without its line end. `place`: where the file has it."""
        if self.rows >= self._limits["rows"]:
            raise Refused("too_many_rows", f"the file has more than {self._limits['rows']} rows; split it")
        line = b"%d%s%s\n" % (place, mark, line)
        if self.bytes + len(line) > self._limits["decoded_bytes"]:
            raise Refused(
                "decoded_too_large",
                f"decompressed, the file has more than {self._limits['decoded_bytes']} bytes, exceeded in row "
                f"{self.rows + 1}; split it",
            )
        self.rows += 1
        self.bytes += len(line)
        self._target.write(line)

    def row(self, place: int, row: dict[str, Any]) -> None:
        text = json.dumps(row, ensure_ascii=False, default=_plain)
        self.line(place, text.encode("utf-8", "surrogatepass"))

    def fault(self, place: int, code: str, message: str) -> None:
        """A row that cannot be read, while those behind it can."""
        self.line(place, json.dumps({"code": code, "message": message}).encode(), mark=b"!")

    def check_columns(self, names: list[str]) -> None:
        if len(names) > self._limits["columns"]:
            raise Refused("too_many_columns", f"{len(names)} columns, at most {self._limits['columns']}")
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise Refused("column_twice", f"the column {twice!r} is there twice; rename one of them")

    def check_cell(self, size: int, column: str) -> None:
        if size > self._limits["cell_bytes"]:
            raise Refused(
                "cell_too_large",
                f"column {column!r} has a cell of {size} bytes, at most {self._limits['cell_bytes']}; shorten it or "
                "leave its row out",
            )


def decode(source: BinaryIO, target: BinaryIO, common: dict[str, Any]) -> dict[str, Any]:
    """Counters, and what was refused. `common`: filename, format, compression, limits, stop_after."""
    counter = LimitEnforcer(target, common["limits"], common["stop_after"])
    refused = None
    try:
        _FORMATS[common["format"]](_opened(source, common), counter, common)
    except Refused as error:
        refused = {"code": error.code, "message": str(error)}
    except (
        OSError,
        EOFError,
        ValueError,
        NotImplementedError,
        zlib.error,
    ) as error:  # what readers of damage raise
        refused = {"code": "unreadable", "message": _why(common, counter.rows, error)[:500]}
    target.flush()
    return {
        "rows": counter.rows, "decoded_bytes": counter.bytes, "refused": refused, "delimiter": counter.delimiter,
    }  # fmt: skip


def _why(common: dict[str, Any], rows: int, error: Exception) -> str:
    said = str(error).partition("\n")[0]
    if common["format"] == "parquet" and not rows:
        return f"this is no Parquet file, or it is damaged or cut short; write it again and upload it again ({said})"
    if isinstance(error, EOFError):
        return f"after row {rows} the compressed file ends in its middle; upload it again ({said})"
    if common["compression"]:
        return (
            f"after row {rows} the {common['compression']} data are damaged; compress the file again ({said})"
        )
    return f"after row {rows}: {said or type(error).__name__}"


def _opened(source: BinaryIO, common: dict[str, Any]) -> BinaryIO:
    """The plain bytes. Refuses what its first bytes give away as something else."""
    _refuse_other_content(_head(source), common["format"], common["compression"])
    if not common["compression"]:
        plain = source
    elif common["compression"] == "gzip":
        plain = io.BufferedReader(gzip.GzipFile(fileobj=source), CHUNK)  # type: ignore[assignment]
    else:
        import pyarrow

        stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(source, mode="r"), "zstd")
        plain = io.BufferedReader(stream, CHUNK)
    if common["format"] != "parquet":
        if common["compression"]:
            _refuse_other_content(_head(plain), common["format"], "")
        _refuse_utf16(_head(plain), common)
    return plain


def _head(source: BinaryIO) -> bytes:
    head: bytes = source.peek(HEAD_BYTES)[:HEAD_BYTES]  # type: ignore[attr-defined]
    return head


def _refuse_other_content(head: bytes, format: str, compression: str) -> None:
    expected = compression or format
    found = next(((kind, what) for magic, kind, what in MAGIC if head.startswith(magic)), None)
    if found is not None and found[0] != expected:
        raise Refused("wrong_format", f"the file is read as {expected} by its name, but it is {found[1]}")
    if found is None and compression:
        raise Refused(
            "wrong_format",
            f"the name says that the file is compressed by {compression}, which it is not: take that ending off its "
            "name, or compress it again",
        )


def _refuse_utf16(head: bytes, common: dict[str, Any]) -> None:
    wide = "UTF-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else ""
    if not wide and head.count(b"\0") > len(head) // 4:
        wide = "UTF-16LE" if head[1::2].count(b"\0") > head[::2].count(b"\0") else "UTF-16BE"
    if wide:
        way = _command(common, f"iconv -f {wide} -t UTF-8", ".utf8")
        raise Refused("not_utf8", f"the file is {wide}; only UTF-8 is read. Convert it: {way}")


def _command(common: dict[str, Any], program: str, ending: str) -> str:
    """A line for the shell, in the folder of the file, that makes a new file of it."""
    name = common.get("filename") or "FILE"
    unpack = {"gzip": "gzip -dc", "zstd": "zstd -dc"}.get(common["compression"])
    stem = re.sub(r"\.(gz|zst)$", "", name, flags=re.IGNORECASE)
    base, dot, suffix = stem.rpartition(".")
    made = f"{base}{ending}.{suffix}" if dot and not ending.endswith(".jsonl") else f"{base or stem}{ending}"
    source, target = shlex.quote(name), shlex.quote(made)
    return f"{unpack} {source} | {program} > {target}" if unpack else f"{program} < {source} > {target}"


def _latin1_way(common: dict[str, Any]) -> str:
    return f"if the file is Latin-1, convert it: {_command(common, 'iconv -f ISO-8859-1 -t UTF-8', '.utf8')}"


def _json_lines(source: BinaryIO, counter: LimitEnforcer, common: dict[str, Any]) -> None:
    """Lines as they are: what is wrong inside one is found later, with its line. Blank last lines are no rows."""
    longest = common["limits"]["line_bytes"]
    _refuse_json_document(_head(source), common)
    place, blank = 0, 0
    while line := source.readline(longest + 1):
        place += 1
        if len(line) > longest and not line.endswith(b"\n"):
            raise Refused(
                "line_too_large",
                f"line {place} is longer than {longest} bytes; every row is one line, so end it or shorten the row",
            )
        if place == 1:
            line = line.removeprefix(UTF8_BOM)
        line = line.rstrip(b"\r\n")
        if not line.strip():
            blank += 1
            continue
        for before in range(place - blank, place):
            counter.fault(before, "not_json", "the line is empty; delete it")
        blank = 0
        try:
            line.decode()
        except UnicodeDecodeError as error:
            message = f"byte {error.start} of the line is not UTF-8; {_latin1_way(common)}"
            counter.fault(place, "not_utf8", message)
        else:
            counter.line(place, line)
        if counter.has_enough:
            return


def _refuse_json_document(head: bytes, common: dict[str, Any]) -> None:
    begins = head.removeprefix(UTF8_BOM).lstrip()
    if begins.startswith(b"["):
        way = _command(common, JSON_ARRAY_TO_LINES, ".lines.jsonl")
        raise Refused(
            "json_array", f"the file is a JSON array; a dataset has one object per line. Convert it: {way}"
        )
    first = begins.partition(b"\n")[0].strip().decode("latin-1")
    if _looks_like_csv(first):
        raise Refused(
            "wrong_format",
            f"line 1 is no JSON object: {first[:80]!r}; the file is read as JSON lines by its name. If it is CSV, let "
            "its name end in .csv",
        )
    if first == "{":
        way = _command(common, "jq -c .", ".lines.jsonl")
        raise Refused(
            "json_over_lines",
            f"the file has JSON objects over several lines; a dataset has one object per line. Convert it: {way}",
        )


def _looks_like_csv(line: str) -> bool:
    return not line.startswith(("{", '"')) and any(delimiter in line for delimiter in DELIMITERS)


def _csv(source: BinaryIO, counter: LimitEnforcer, common: dict[str, Any]) -> None:
    csv.field_size_limit(common["limits"]["cell_bytes"])
    counter.delimiter = delimiter = _delimiter(_head(source))
    text = io.TextIOWrapper(source, encoding="utf-8-sig", errors="surrogateescape", newline="")  # type: ignore[type-var]
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    names = _cells(reader, 1, common)
    if not names:
        raise Refused("empty", "the file is empty; its first line names the columns" if names is None else
                      "line 1 is empty; it must name the columns")  # fmt: skip
    if bad := _not_utf8(names):
        raise Refused("not_utf8", f"line 1: {bad!r} is not UTF-8; {_latin1_way(common)}")
    counter.check_columns(names)
    while not counter.has_enough:
        place = reader.line_num + 1
        cells = _cells(reader, place, common)
        if cells is None:
            if not counter.rows:
                raise Refused("empty", "the file has a line of column names and no rows")
            return
        if not cells:
            continue  # an empty line is no row
        if len(cells) != len(names):
            counter.fault(
                place, "wrong_cells",
                f"the row has {len(cells)} cells, the first line names {len(names)} columns, with "
                f"{DELIMITERS[delimiter]} between them; put a cell that holds one into double quotes",
            )  # fmt: skip
        elif bad := _not_utf8(cells):
            counter.fault(place, "not_utf8", f"the cell {bad!r} is not UTF-8; {_latin1_way(common)}")
        else:
            counter.row(place, dict(zip(names, cells, strict=True)))


def _delimiter(head: bytes) -> str:
    """What separates the names of the first line: what it has most of outside of quotes, a comma when in doubt."""
    first = re.sub(rb'"[^"]*"', b"", head).partition(b"\n")[0].decode("latin-1")
    return max(DELIMITERS, key=first.count)


def _cells(reader: Any, place: int, common: dict[str, Any]) -> list[str] | None:
    """Of the next row, which begins at line `place`; None at the end of the file."""
    try:
        cells: list[str] | None = next(reader, None)
    except csv.Error as error:
        said = str(error)
        if "field larger" in said:
            most = common["limits"]["cell_bytes"]
            message = f"line {place}: a cell has more than {most} characters; shorten it, or close its quote"
            raise Refused("cell_too_large", message) from error
        if "unexpected end" in said:
            message = (
                f'line {place}: a cell begins with " and no " ends it before the end of the file; add one'
            )
            raise Refused("unreadable", message) from error
        message = (
            f'line {place}: after the " that ends a cell comes more text ({said}); a " inside of a quoted cell is '
            'written twice, ""'
        )
        raise Refused("unreadable", message) from error
    return cells


def _not_utf8(cells: list[str]) -> str:
    """The first cell with bytes that are not UTF-8, as readable as can be; "" when there is none."""
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        bad = next(cell for cell in cells if any("\udc80" <= character <= "\udcff" for character in cell))
        return bad.encode("utf-8", "surrogateescape").decode("latin-1")[:80]
    return ""


def _parquet(source: BinaryIO, counter: LimitEnforcer, common: dict[str, Any]) -> None:
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
            counter.row(counter.rows + 1, row)
            if counter.has_enough:
                return


def _plain(value: Any) -> str:
    """Dates, decimals and bytes as text; a mapping that wants them says what they mean."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


_FORMATS = {"jsonl": _json_lines, "csv": _csv, "parquet": _parquet}

if "report" in globals():  # given by the sandbox
    _buffered = io.BufferedWriter(io.FileIO(1, "wb", closefd=False), CHUNK)
    report(decode(io.BufferedReader(io.FileIO(0, "rb", closefd=False), CHUNK), _buffered, common))  # type: ignore[name-defined]  # noqa: F821
