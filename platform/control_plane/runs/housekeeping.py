from __future__ import annotations

from datetime import datetime, timedelta

from control_plane.accounts.services import forget_old_failures
from control_plane.accounts.tickets import forget_old_tickets
from control_plane.catalog import store
from control_plane.common.idempotency import forget_old_keys
from control_plane.runs.checkpoints import apply_automatic_retention

STALE = timedelta(days=1)


def clean_up(*, now: datetime) -> None:
    """Forget what has outlived its use: answers kept for repeats, failed logins, files of broken uploads."""
    forget_old_keys(now)
    forget_old_failures(now)
    forget_old_tickets(now)
    apply_automatic_retention(now=now)
    store.drop_unfinished(before=now - STALE)
