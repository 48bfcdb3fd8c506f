"""Rows that many tests begin with: written once by the code that makes them, then copied into each test's tables.

COPY puts a few dozen rows of a dozen tables back in milliseconds, where the services that made them take hundreds.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from django.db import connection, transaction

COPY_OUT = "COPY {} TO STDOUT"
COPY_IN = "COPY {} FROM STDIN"


@dataclass(frozen=True)
class Copies:
    """The rows that were added to empty tables, and the files that were written beside them."""

    rows: dict[str, bytes]
    files: Path

    def restore(self, folder: Path) -> None:
        """Add the rows to the tables and the files to the folder."""
        with transaction.atomic(), connection.cursor() as cursor:
            for table, rows in self.rows.items():
                with cursor.copy(COPY_IN.format(table)) as stream:
                    stream.write(rows)
        shutil.copytree(self.files, folder, dirs_exist_ok=True)


def copy_what_is_made(make: Callable[[], None], *, folder: Path, kept: Path) -> Copies:
    """Call `make`, which writes rows and files into `folder`; return copies of both, the files' in `kept`.

    Raises:
        ValueError: `make` changed a table that had rows before, which a copy does not tell apart.
    """
    before = _all_rows()
    make()
    after = _all_rows()
    changed = {table: rows for table, rows in after.items() if rows != before[table]}
    unclear = sorted(table for table in changed if before[table])
    if unclear:
        raise ValueError(f"rows were there before: {', '.join(unclear)}")
    shutil.copytree(folder, kept)
    return Copies(rows=changed, files=kept)


def _all_rows() -> dict[str, bytes]:
    tables = sorted(f'"{name}"' for name in connection.introspection.table_names())
    return {table: _rows_of(table) for table in tables}


def _rows_of(table: str) -> bytes:
    with connection.cursor() as cursor, cursor.copy(COPY_OUT.format(table)) as stream:
        return b"".join(bytes(block) for block in stream)
