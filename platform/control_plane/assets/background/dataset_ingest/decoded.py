"""The decoder's output, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import msgspec

from control_plane.assets.datasets.cells import RowFault
from control_plane.assets.datasets.rows import DecodedRow


class _Fault(msgspec.Struct, frozen=True):
    code: str
    message: str


def read_decoded(source: IO[bytes]) -> Iterator[DecodedRow]:
    """Each line is `PLACE ROW` or `PLACE!FAULT`; see `decode`. Raises ValueError for anything else."""
    for line in source:
        digits = 0
        while line[digits : digits + 1].isdigit():
            digits += 1
        place, mark, rest = line[:digits], line[digits : digits + 1], line[digits + 1 :].rstrip(b"\n")
        if mark == b" " and digits:
            yield DecodedRow(int(place), rest)
        elif mark == b"!" and digits:
            fault = msgspec.json.decode(rest, type=_Fault)
            yield DecodedRow(int(place), b"", RowFault("", fault.code, fault.message))
        else:
            raise ValueError(f"the decoder wrote {line[:80]!r}, which is no row")
