"""The end of a log file, short enough for an error message."""

from __future__ import annotations

from pathlib import Path

TAIL_LINES = 20
TAIL_CHARACTERS = 2000


def log_tail(path: Path, *, offset: int = 0) -> str:
    """The last lines that were written at or after `offset` bytes; empty where there are none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(offset, size - 4 * TAIL_CHARACTERS))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.strip().splitlines()[-TAIL_LINES:])[-TAIL_CHARACTERS:]
