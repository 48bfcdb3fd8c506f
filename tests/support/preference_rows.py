"""A few preference pairs about short sums, as canonical rows."""

from __future__ import annotations

from pathlib import Path

import msgspec

from oolong.contracts.attempt import CanonicalRow


def preference_rows(number: int, *, split: str = "train", first: int = 0) -> list[CanonicalRow]:
    """Prompts of one digit; the chosen completion is right, the rejected one is not and may be longer."""
    return [
        CanonicalRow(
            row=first + row,
            split=split,
            messages=[{"role": "user", "content": f"a{row % 10}"}],
            answer="",
            chosen=[{"role": "assistant", "content": str(row)}],
            rejected=[{"role": "assistant", "content": str(row + 1) + "!" * (row % 3)}],
        )
        for row in range(number)
    ]


def write_rows(file: Path, rows: list[CanonicalRow]) -> Path:
    file.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return file
