"""The Retry-After header (RFC 9110, section 10.2.3). Pure."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime


def retry_after_seconds(header: str, *, now: float) -> float | None:
    """Seconds from `now` (unix time) for seconds or a date; None for anything else, and without the header."""
    text = header.strip()
    if text.isdecimal() and len(text) < 10:
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if moment.tzinfo is None:  # -0000
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - now)
