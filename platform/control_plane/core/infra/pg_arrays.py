"""Columns as PostgreSQL's own binary arrays: a statement that takes thousands of values spends next to no time on
writing them down as text."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import psycopg
from django.db import connection
from numpy.typing import NDArray
from psycopg.adapt import Dumper
from psycopg.pq import Format

# OIDs of PostgreSQL's catalog: of an element and of its array.
_INT8, _INT8_ARRAY = 20, 1016
_FLOAT8, _FLOAT8_ARRAY = 701, 1022
_TEXT, _TEXT_ARRAY = 25, 1009
_HEADER = struct.Struct(">iiiii")  # dimensions, has nulls, OID of an element, length, first index
_LENGTH = struct.Struct(">i")


class PgArray:
    """The bytes of one array."""

    oid: int

    def __init__(self, data: bytes) -> None:
        self.data = data


class Int8Array(PgArray):
    oid = _INT8_ARRAY

    def __init__(self, values: Sequence[int] | NDArray[np.int64]) -> None:
        super().__init__(_numbers(values, ">i8", _INT8))


class Float8Array(PgArray):
    oid = _FLOAT8_ARRAY

    def __init__(self, values: Sequence[float] | NDArray[np.float64]) -> None:
        super().__init__(_numbers(values, ">f8", _FLOAT8))


class TextArray(PgArray):
    oid = _TEXT_ARRAY

    def __init__(self, values: Sequence[bytes]) -> None:
        pieces = [_header(_TEXT, len(values))]
        for value in values:
            pieces += (_LENGTH.pack(len(value)), value)
        super().__init__(b"".join(pieces))


def execute(statement: str, parameters: dict[str, Any]) -> psycopg.Cursor[Any]:
    """Run a statement whose parameters may be columns, in Django's transaction. Placeholders are %(name)s."""
    connection.ensure_connection()
    cursor: psycopg.Cursor[Any] = psycopg.Cursor(connection.connection)
    for kind in (Int8Array, Float8Array, TextArray):
        cursor.adapters.register_dumper(kind, _DUMPERS[kind])
    # Django's errors instead of the driver's, as from its own cursors.
    with connection.wrap_database_errors:
        cursor.execute(statement, parameters)
    return cursor


class _ColumnDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: PgArray) -> bytes:
        return obj.data


def _dumper_of(kind: type[PgArray]) -> type[Dumper]:
    return type(f"{kind.__name__}Dumper", (_ColumnDumper,), {"oid": kind.oid})


_DUMPERS: dict[type[PgArray], type[Dumper]] = {
    kind: _dumper_of(kind) for kind in (Int8Array, Float8Array, TextArray)
}


def _numbers(values: Sequence[Any] | NDArray[Any], of: str, oid: int) -> bytes:
    elements = np.empty(len(values), dtype=[("bytes", ">i4"), ("value", of)])
    elements["bytes"] = 8
    elements["value"] = values
    return _header(oid, len(values)) + elements.tobytes()


def _header(oid: int, length: int) -> bytes:
    return _HEADER.pack(1, 0, oid, length, 1) if length else _HEADER.pack(0, 0, oid, 0, 0)[:12]
