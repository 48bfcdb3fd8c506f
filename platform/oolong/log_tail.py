"""The end of a log file, short enough for an error message."""

from __future__ import annotations

import re
from pathlib import Path

TAIL_LINES = 20
TAIL_CHARACTERS = 2000
# A warning of Python's `warnings` module, with the source line that it prints below.
PYTHON_WARNING = re.compile(r"^\S*:\d+: \w*Warning: .*\n(?:  .*\n)?", re.MULTILINE)


def log_tail(path: Path, *, offset: int = 0) -> str:
    """The last lines that were written at or after `offset` bytes, without Python's warnings; may be empty."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(offset, size - 4 * TAIL_CHARACTERS))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(PYTHON_WARNING.sub("", text).strip().splitlines()[-TAIL_LINES:])[-TAIL_CHARACTERS:]
