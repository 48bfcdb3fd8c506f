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

UPLOAD_TTL = timedelta(days=1)


def clean_up(*, now: datetime) -> None:
    """Delete expired rows and files: idempotency keys, failed logins, tickets, lapsed roles, unfinished uploads."""
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("deleting old idempotency keys", lambda: forget_old_keys(now)),
        ("deleting old failed logins", lambda: forget_old_failures(now)),
        ("deleting old tickets", lambda: forget_old_tickets(now)),
        ("revoking expired roles", lambda: take_lapsed_roles(now=now)),
        ("applying automatic retention", lambda: apply_automatic_retention(now=now)),
        ("deleting blobs of deleted checkpoints", lambda: free_left_bytes(now=now)),
        ("deleting unfinished uploads", lambda: store.drop_unfinished(before=now - UPLOAD_TTL)),
    )
    for what, step in steps:
        with apart(what):
            step()
