"""Reading the rows of a dataset version."""

from __future__ import annotations

from pathlib import Path

import msgspec

from oolong.contracts.attempt import CanonicalRow


class InvalidDataset(Exception):
    """The dataset cannot be trained on. The message names the row and the reason."""


def read_rows(file: Path, *, split: str) -> list[CanonicalRow]:
    """Return the rows of one split, in file order."""
    decoder = msgspec.json.Decoder(CanonicalRow)
    rows: list[CanonicalRow] = []
    number = 0
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines):  # noqa: B007 - named in the error below
                row = decoder.decode(line)
                if row.split == split:
                    rows.append(row)
    except OSError as error:
        raise InvalidDataset(f"dataset file {file} cannot be read: {error}") from error
    except msgspec.DecodeError as error:
        raise InvalidDataset(f"dataset file {file}, line {number}: {error}") from error
    if not rows:
        raise InvalidDataset(f"dataset file {file} has no rows in split {split!r}")
    return rows
