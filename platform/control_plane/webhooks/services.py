"""Every write that users request of webhooks."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction

from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.caller import Caller
from control_plane.core.api.errors import FieldError, conflict, unprocessable
from control_plane.core.infra import ids
from control_plane.core.infra.locks import LockClass, transaction_lock
from control_plane.core.security.encryption import encrypt
from control_plane.webhooks import outbox, signing
from control_plane.webhooks.event_types import EVENT_TYPES, TEST_ONLY, unknown_patterns
from control_plane.webhooks.models import Delivery, DeliveryState, Webhook
from control_plane.webhooks.signing_secrets import encryption_context
from control_plane.webhooks.url_policy import check_url
from oolong.system.safe_http import AddressBlocked, FetchFailed

OVERLAP = timedelta(hours=24)  # after a rotation both secrets sign
MAX_WEBHOOKS = 50


def create_webhook(
    caller: Caller, *, name: str, url: str, events: list[str], now: datetime
) -> tuple[Webhook, str]:
    """The row and its secret, which is shown this once."""
    _validate(url=url, events=events)
    secret = signing.new_secret()
    identity = ids.webhook_id()
    sealed = encrypt(secret, place=encryption_context(identity))
    with transaction.atomic():
        transaction_lock(LockClass.QUOTA, f"webhooks {caller.project.pk}")
        if Webhook.objects.filter(project=caller.project).count() >= MAX_WEBHOOKS:
            raise conflict("too_many", f"a project has at most {MAX_WEBHOOKS} webhooks; delete one first")
        try:
            with transaction.atomic():
                webhook = Webhook.objects.create(
                    id=identity, project=caller.project, created_by=caller.user, name=name, url=url, events=events,
                    secret=sealed.sealed, secret_key_id=sealed.key_id, created_at=now, updated_at=now,
                )  # fmt: skip
        except IntegrityError as error:
            raise _name_taken(name) from error
        _record("create", webhook, now=now, data={"events": events})
    return webhook, secret


def update_webhook(webhook_id: str, fields: dict[str, Any], *, now: datetime) -> Webhook:
    """Name, URL, events, or whether it is on. Enabling it again does not retry failed deliveries."""
    _validate(**{key: fields[key] for key in ("url", "events") if key in fields})
    with transaction.atomic():
        webhook = Webhook.objects.select_for_update().get(pk=webhook_id)
        if fields.get("enabled") and not webhook.enabled:
            webhook.disabled_reason, webhook.failing_since = "", None
        if fields.get("enabled") is False and webhook.enabled:
            webhook.disabled_reason = "turned off by hand"
            webhook.deliveries.filter(state=DeliveryState.PENDING).update(
                state=DeliveryState.FAILED, ended_at=now, message="the webhook was turned off"
            )
        for name, value in fields.items():
            setattr(webhook, name, value)
        webhook.updated_at = now
        try:
            with transaction.atomic():
                webhook.save()
        except IntegrityError as error:
            raise _name_taken(webhook.name) from error
        _record("edit", webhook, now=now, data={"changed": sorted(fields)})
    return webhook


def rotate_secret(webhook_id: str, *, now: datetime) -> tuple[Webhook, str]:
    """A new secret, shown this once. For a day both sign, so that the receiver may change over at any moment of it."""
    secret = signing.new_secret()
    sealed = encrypt(secret, place=encryption_context(webhook_id))
    with transaction.atomic():
        webhook = Webhook.objects.select_for_update().get(pk=webhook_id)
        webhook.previous_secret, webhook.previous_key_id = webhook.secret, webhook.secret_key_id
        webhook.previous_until = now + OVERLAP
        webhook.secret, webhook.secret_key_id, webhook.updated_at = sealed.sealed, sealed.key_id, now
        webhook.save()
        _record("rotate_secret", webhook, now=now)
    return webhook, secret


def delete_webhook(webhook_id: str, *, now: datetime) -> None:
    with transaction.atomic():
        webhook = Webhook.objects.select_for_update().get(pk=webhook_id)
        _record("delete", webhook, now=now)
        webhook.delete()


def send_test(webhook: Webhook, *, by: Caller, now: datetime) -> Delivery:
    """A `webhook.test` to this webhook alone. 409 when it is off."""
    with transaction.atomic():
        _require_enabled(webhook)
        data = {"asked_by": by.user.username}
        (delivery,) = outbox.send([webhook], webhook.project_id, "webhook.test", data, now=now)
    return delivery


def redeliver(delivery: Delivery, *, now: datetime) -> Delivery:
    """The same event once more, under the same `webhook-id`. 409 while the delivery is pending or the webhook off."""
    with transaction.atomic():
        _require_enabled(delivery.webhook)
        held = Delivery.objects.select_for_update().get(pk=delivery.pk)
        if held.state == DeliveryState.PENDING:
            raise conflict("pending", f"it is tried again at {held.next_at:%H:%M:%S} by itself")
        return Delivery.objects.create(
            webhook_id=held.webhook_id, event_id=held.event_id, next_at=now, created_at=now
        )


def _require_enabled(webhook: Webhook) -> None:
    if not webhook.enabled:
        raise conflict(
            "webhook_disabled",
            f"webhook {webhook.name!r} is off: {webhook.disabled_reason}; turn it on first",
        )


def _validate(*, url: str | None = None, events: list[str] | None = None) -> None:
    if events is not None and (odd := unknown_patterns(events)):
        known = ", ".join(type for type in EVENT_TYPES if type not in TEST_ONLY)
        message = f"no event is called {odd[0]!r}; there are {known}; run.* is all of runs, * is all"
        at = events.index(odd[0])
        raise unprocessable("invalid", message, [FieldError(f"/events/{at}", "unknown", message)])
    if url is not None:
        try:
            check_url(url, networks=settings.ENVIRONMENT.webhook_networks)
        except (AddressBlocked, FetchFailed) as error:
            raise unprocessable(
                "address_blocked", str(error), [FieldError("/url", "address_blocked", str(error))]
            ) from error


def _name_taken(name: str) -> Exception:
    return conflict("name_taken", f"the project has a webhook {name!r} already")


def _record(verb: str, webhook: Webhook, *, now: datetime, data: dict[str, Any] | None = None) -> None:
    audit_log.record(
        f"webhook.{verb}",
        target=("webhook", webhook.pk, webhook.name),
        project=webhook.project_id,
        at=now,
        data=data,
    )
