"""What commands print: results on stdout (tables, or JSON with --json), everything else on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any, TypedDict, TypeVar

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text
from typer.exceptions import TyperException

from oolong.client.errors import ApiError
from oolong.client.models import DatasetStatistics, DatasetValidation

JsonOption = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]

Resource = TypeVar("Resource", bound=BaseModel)

notes = Console(stderr=True, highlight=False, soft_wrap=True)


def show_json(value: BaseModel | Iterable[BaseModel] | dict[str, Any]) -> None:
    if isinstance(value, BaseModel):
        document: Any = value.model_dump(mode="json")
    elif isinstance(value, dict):
        document = value
    else:
        document = [item.model_dump(mode="json") for item in value]
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def show_done(message: str, done: BaseModel | dict[str, Any], *, json: bool) -> None:
    """What a command did that has no result to print: a note, or with --json the thing as it is now."""
    show_json(done) if json else notes.print(message, markup=False)


def show_error_json(error: Exception, exit_code: int) -> None:
    """One line on stderr: what a program needs to branch on."""
    document: dict[str, Any] = {"error": str(error), "exit_code": int(exit_code)}
    if isinstance(error, TyperException):
        document = {"error": error.format_message(), "exit_code": int(exit_code), "code": "usage"}
    elif isinstance(error, ApiError):
        document = {
            "error": error.detail, "exit_code": int(exit_code), "code": error.code, "status": error.status,
            "request_id": error.request_id, "errors": [asdict(field) for field in error.errors],
        }  # fmt: skip
    sys.stderr.write(json.dumps(document, ensure_ascii=False) + "\n")


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on a terminal, tab-separated lines elsewhere."""
    if not sys.stdout.isatty():
        for row in rows:
            sys.stdout.write("\t".join(_text(cell) for cell in row) + "\n")
        return
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(Text(_text(cell)) for cell in row))
    Console(highlight=False, markup=False).print(table)


def show_list(
    found: Iterable[Resource],
    columns: Sequence[str],
    row: Callable[[Resource], Sequence[object]],
    *,
    json: bool,
) -> None:
    """A table with a row for each resource, or with --json the resources."""
    show_json(found) if json else show_table(columns, map(row, found))


def show_secret(note: str, secret: str, made: BaseModel, *, json: bool) -> None:
    """What is shown this once: the secret alone on stdout, the note on stderr; or with --json what was made."""
    if json:
        show_json(made)
        return
    notes.print(note, markup=False)
    print(secret)


def show_fields(fields: dict[str, object]) -> None:
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        sys.stdout.write(f"{name:<{width}}  {_text(value)}\n")


LINE_SECONDS = 5.0

Update = Callable[[str, int, int | None], None]  # what is done, bytes done, of how many


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Update]:
    """How far a transfer is, on stderr: a bar on a terminal, elsewhere a line every LINE_SECONDS. `quiet`: no lines,
    for a caller who reads stderr as JSON."""
    if not notes.is_terminal:
        yield (lambda doing, done, total: None) if quiet else _progress_lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=notes, transient=True) as bars:
        task = bars.add_task("", total=None)
        yield lambda doing, done, total: bars.update(task, description=doing, completed=done, total=total)


def _progress_lines() -> Update:
    due = time.monotonic() + LINE_SECONDS

    def update(doing: str, done: int, total: int | None) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + LINE_SECONDS
            of = "" if total is None else f": {decimal(done)} of {decimal(total)}"
            notes.print(f"{doing}{of}", markup=False)

    return update


@contextmanager
def byte_progress(label: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Progress on stderr for `progress=` of the client."""
    with _progress(quiet=quiet) as update:
        yield lambda done, total: update(label, done, total)


class DatasetProgress(TypedDict):
    """Arguments of the client's `datasets.upload` and `datasets.validate`."""

    progress: Callable[[int, int], None]
    checking: Callable[[DatasetValidation], None]


@contextmanager
def dataset_progress(label: str, *, quiet: bool = False) -> Iterator[DatasetProgress]:
    """Progress on stderr, first of the upload, then of the check of its rows."""
    with _progress(quiet=quiet) as update:
        yield {
            "progress": lambda done, total: update(f"uploading {label}", done, total),
            "checking": lambda found: update(check_state(label, found), found.bytes_seen, found.bytes),
        }


@contextmanager
def counting_progress(label: str, *, quiet: bool = False) -> Iterator[Callable[[DatasetStatistics], None]]:
    """Progress on stderr of the rows whose tokens are counted."""
    with _progress(quiet=quiet) as update:
        yield lambda found: update(counting_state(label, found), found.bytes_seen, found.bytes)


def counting_state(label: str, found: DatasetStatistics) -> str:
    """What is done about token statistics, in a few words."""
    return f"{label} waits to be counted" if found.state == "QUEUED" else f"counting tokens of {label}"


def check_state(label: str, found: DatasetValidation) -> str:
    """How far the check of an upload has come, in a few words."""
    if found.state == "QUEUED":
        return f"{label} waits for its check"
    return f"checking {label}, {found.rows_seen} rows checked" if found.rows_seen else f"reading {label}"


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
