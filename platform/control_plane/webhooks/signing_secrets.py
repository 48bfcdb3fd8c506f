"""The signing secrets of webhooks, encrypted, each bound to its webhook."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import Q

from control_plane.core.security.encryption import Sealed, decrypt, encrypt, newest_key_id
from control_plane.webhooks.models import Webhook


def encryption_context(webhook_id: str) -> str:
    return f"webhook/{webhook_id}"


def rotate() -> int:
    """Seal everything with the server's newest key; how many webhooks that changed. Safe to repeat and break off."""
    newest = newest_key_id()
    stale = ~Q(secret_key_id=newest) | (Q(previous_secret__isnull=False) & ~Q(previous_key_id=newest))
    changed = 0
    for identity in Webhook.objects.filter(stale).values_list("pk", flat=True):
        with transaction.atomic():
            row = Webhook.objects.select_for_update().filter(pk=identity).first()
            if row is None:
                continue
            place = encryption_context(row.pk)
            fresh = encrypt(decrypt(Sealed(row.secret_key_id, bytes(row.secret)), place=place), place=place)
            row.secret, row.secret_key_id = fresh.sealed, fresh.key_id
            if row.previous_secret is not None:
                before = encrypt(
                    decrypt(Sealed(row.previous_key_id, bytes(row.previous_secret)), place=place), place=place
                )
                row.previous_secret, row.previous_key_id = before.sealed, before.key_id
            row.save(update_fields=["secret", "secret_key_id", "previous_secret", "previous_key_id"])
            changed += 1
    return changed


def active_secrets(webhook: Webhook, *, now: datetime) -> list[tuple[Sealed, str]]:
    """The sealed secrets that sign now, newest first, each with the place that it was sealed for."""
    place = encryption_context(webhook.pk)
    found = [(Sealed(webhook.secret_key_id, bytes(webhook.secret)), place)]
    if (
        webhook.previous_secret is not None
        and webhook.previous_until is not None
        and webhook.previous_until > now
    ):
        found.append((Sealed(webhook.previous_key_id, bytes(webhook.previous_secret)), place))
    return found
