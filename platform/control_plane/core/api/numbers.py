"""Numbers from untrusted text: addresses, headers, cursors."""

from __future__ import annotations

MOST_DIGITS = 18  # below 2^63; and Python itself refuses to read more than a few thousand


def parse_int(text: str) -> int | None:
    """Parse a non-negative integer in plain digits; None for anything else."""
    if not text.isascii() or not text.isdecimal() or len(text) > MOST_DIGITS:
        return None
    return int(text)
