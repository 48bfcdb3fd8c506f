from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from control_plane.accounts.identity.oidc import take_lapsed_roles
from control_plane.accounts.identity.services import forget_old_failures
from control_plane.accounts.tokens.tickets import forget_old_tickets
from control_plane.assets.storage import store
from control_plane.checkpoints.provenance import apply_automatic_retention
from control_plane.checkpoints.registry import free_left_bytes
from control_plane.core.api.idempotency import forget_old_keys
from control_plane.core.infra.isolate_errors import apart

STALE = timedelta(days=1)


def clean_up(*, now: datetime) -> None:
    """Forget what has outlived its use: answers kept for repeats, failed logins, files of broken uploads."""
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("forgetting old answers", lambda: forget_old_keys(now)),
        ("forgetting old failed logins", lambda: forget_old_failures(now)),
        ("forgetting old tickets", lambda: forget_old_tickets(now)),
        ("taking roles that have lapsed", lambda: take_lapsed_roles(now=now)),
        ("the automatic retention", lambda: apply_automatic_retention(now=now)),
        ("freeing the bytes of freed checkpoints", lambda: free_left_bytes(now=now)),
        ("dropping unfinished uploads", lambda: store.drop_unfinished(before=now - STALE)),
    )
    for what, step in steps:
        with apart(what):
            step()
