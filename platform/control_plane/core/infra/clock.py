"""The one place where the control plane asks for the time. Decisions take `now` as an argument instead."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone


def now() -> datetime:
    return timezone.now()


def rfc3339(moment: datetime | None) -> str | None:
    """`2026-11-20T10:00:00.123Z`, or None."""
    if moment is None:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
