"""Canonical dataset rows, read from the file that the agent downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from oolong.contracts.attempt import CanonicalRow


class InvalidDataset(ValueError):
    """The dataset's rows are unusable for this run. The message names the line or the split."""


def read_rows(path: str | Path, *, split: str) -> list[CanonicalRow]:
    """Return the rows of one split, in file order."""
    splits: dict[str, int] = {}
    rows = []
    for row in _decode(Path(path)):
        splits[row.split] = splits.get(row.split, 0) + 1
        if row.split == split:
            rows.append(row)
    if not rows:
        raise InvalidDataset(
            f"split {split!r} has no rows; the dataset version has {splits or 'no rows at all'}"
        )
    return rows


def _decode(path: Path) -> Iterator[CanonicalRow]:
    decoder = msgspec.json.Decoder(CanonicalRow)
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError as error:
                raise InvalidDataset(
                    f"line {number} of the dataset is not a canonical row: {error}"
                ) from error
