"""Numbers as strangers write them: in an address, a header, a cursor."""

from __future__ import annotations

MOST_DIGITS = 18  # below 2^63; and Python itself refuses to read more than a few thousand


def whole(text: str) -> int | None:
    """A number from 0 on in plain digits; None for anything else."""
    if not text.isascii() or not text.isdecimal() or len(text) > MOST_DIGITS:
        return None
    return int(text)
