"""Input and output of a validation process."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from control_plane.assets.datasets import rows

RESULT_FILE, PROGRESS_FILE = "result.json", "progress.json"
CANONICAL_FILE, REPORT_FILE = "canonical.jsonl", "report.jsonl"
FILE_POINTER = "/upload_id"  # of a fault of the file as a whole
FORMATS = ("jsonl", "csv", "parquet", "huggingface")  # the last: a tar of a dataset directory
# What a file may hold at most, decoded.
LIMITS = {
    "rows": rows.MAX_ROWS,
    "columns": 200,
    "cell_bytes": 1024 * 1024,
    "line_bytes": rows.MAX_LINE_BYTES,
    "decoded_bytes": 20 * 10**9,
}


class ParseJob(msgspec.Struct, frozen=True, kw_only=True):
    source: str  # path of the uploaded file, or a signed URL of it
    format: str  # of FORMATS
    compression: str  # "", gzip, zstd
    mapping: dict[str, Any] | None  # of rows.Mapping; None: only look at the columns
    stop_after: int | None  # rows; None: all
    config: str = ""  # of a dataset directory that has several
    filename: str = ""  # as the user knows the file, for commands in messages
    limits: dict[str, int] = msgspec.field(default_factory=lambda: dict(LIMITS))


class ParseResult(msgspec.Struct, frozen=True, kw_only=True):
    isolation: str = ""  # sandbox, or process where this machine has none
    files: list[dict[str, Any]] = []  # of a dataset directory: name, split, first row
    rows: int = 0
    decoded_bytes: int = 0
    refused: dict[str, str] | None = None  # code and message: the file as a whole cannot be used
    columns: list[dict[str, Any]] = []  # name, type, missing
    sample: list[dict[str, Any]] = []  # first rows as they came
    rendered: list[dict[str, Any]] = []  # and as the policy would see them
    faults: int = 0  # lines of the report
    faults_by_code: dict[str, int] = {}
    faults_cut: bool = False  # there may be more
    errors: list[dict[str, str]] = []  # the first of them
    splits: dict[str, int] = {}
    with_completion: dict[str, int] = {}
    with_pair: dict[str, int] = {}
    sources: dict[str, dict[str, int]] = {}  # rows by split and source
    offsets: list[int] = []
    delimiter: str = ""  # of CSV: what stands between cells
    duplicates: int = 0  # rows whose prompt and answer an earlier row had
    conflicts: int = 0  # rows whose prompt an earlier row had, with another answer
    first_conflicts: list[dict[str, str]] = []  # where such a row is, and the earlier one: row, earlier
    leaks: dict[str, int] = {}  # "eval in train": rows whose prompt was in another split before
    prompt_characters: dict[str, float] = {}  # min, mean, max
    canonical_sha256: str = ""  # "" without a mapping or with a fault
    canonical_bytes: int = 0


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a process has come that validates or measures."""

    bytes_seen: int = 0  # of the uploaded file
    rows_seen: int = 0  # checked against the mapping


def format_of(filename: str) -> tuple[str, str]:
    """Format and compression by the name: rows.jsonl.gz → jsonl, gzip. What has another name is JSON lines."""
    suffixes = [suffix.lower() for suffix in PurePosixPath(filename).suffixes]
    if ".tar" in suffixes[-2:] or suffixes[-1:] == [".tgz"]:
        return "huggingface", ""
    compression = {".gz": "gzip", ".zst": "zstd"}.get(suffixes[-1] if suffixes else "", "")
    if compression:
        suffixes.pop()
    return {".csv": "csv", ".parquet": "parquet"}.get(suffixes[-1] if suffixes else "", "jsonl"), compression


def read_result(folder: Path) -> ParseResult | None:
    """None while it is not written, which happens at once and last."""
    try:
        return msgspec.json.decode((folder / RESULT_FILE).read_bytes(), type=ParseResult)
    except FileNotFoundError:
        return None


def read_progress(folder: Path) -> Progress | None:
    """None before the first word of it."""
    try:
        return msgspec.json.decode((folder / PROGRESS_FILE).read_bytes(), type=Progress)
    except FileNotFoundError:
        return None
