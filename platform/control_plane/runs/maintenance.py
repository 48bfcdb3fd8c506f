from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from control_plane.accounts.identity.oidc import take_lapsed_roles
from control_plane.accounts.identity.services import prune_failures
from control_plane.accounts.tokens.tickets import prune_tickets
from control_plane.assets.storage import store
from control_plane.checkpoints.provenance import apply_automatic_retention
from control_plane.checkpoints.registry import collect_garbage
from control_plane.core.api.idempotency import prune_keys
from control_plane.core.infra.isolate_errors import isolate_errors

UPLOAD_TTL = timedelta(days=1)


def clean_up(*, now: datetime) -> None:
    """Delete expired rows and files: idempotency keys, failed logins, tickets, lapsed roles, unfinished uploads."""
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("deleting old idempotency keys", lambda: prune_keys(now)),
        ("deleting old failed logins", lambda: prune_failures(now)),
        ("deleting old tickets", lambda: prune_tickets(now)),
        ("revoking expired roles", lambda: take_lapsed_roles(now=now)),
        ("applying automatic retention", lambda: apply_automatic_retention(now=now)),
        ("deleting blobs of deleted checkpoints", lambda: collect_garbage(now=now)),
        ("deleting unfinished uploads", lambda: store.drop_unfinished(before=now - UPLOAD_TTL)),
    )
    for what, step in steps:
        with isolate_errors(what):
            step()
