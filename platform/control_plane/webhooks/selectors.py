"""Every read of webhooks."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from control_plane.accounts.identity.caller import Caller
from control_plane.core.api.errors import or_not_found
from control_plane.core.infra.clock import rfc3339
from control_plane.webhooks.models import Delivery, Webhook


def webhooks(caller: Caller) -> QuerySet[Webhook]:
    return Webhook.objects.filter(project=caller.project).select_related("created_by")


def webhook_for(caller: Caller, webhook_id: str) -> Webhook:
    return or_not_found(webhooks(caller).filter(pk=webhook_id).first(), "webhook", webhook_id)


def deliveries(webhook: Webhook) -> QuerySet[Delivery]:
    return webhook.deliveries.select_related("event").prefetch_related("log")


def delivery_for(caller: Caller, delivery_id: str) -> Delivery:
    own = Delivery.objects.filter(webhook__project=caller.project, pk=delivery_id)
    return or_not_found(
        own.select_related("event", "webhook").prefetch_related("log").first(), "delivery", delivery_id
    )


def webhook_as_json(webhook: Webhook) -> dict[str, Any]:
    return {
        "id": webhook.pk,
        "name": webhook.name,
        "url": webhook.url,
        "events": webhook.events,
        "enabled": webhook.enabled,
        "disabled_reason": webhook.disabled_reason,
        "failing_since": rfc3339(webhook.failing_since),
        "previous_secret_until": rfc3339(webhook.previous_until),
        "created_by": webhook.created_by.username,
        "created_at": rfc3339(webhook.created_at),
        "updated_at": rfc3339(webhook.updated_at),
    }


def delivery_as_json(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.pk,
        "webhook": delivery.webhook_id,
        "event": {
            "id": delivery.event.pk, "type": delivery.event.type, "at": rfc3339(delivery.event.at),
            "data": delivery.event.data,
        },
        "state": str(delivery.state),
        "message": delivery.message,
        "tries": delivery.tries,
        "next_at": rfc3339(delivery.next_at) if delivery.state == "PENDING" else None,
        "created_at": rfc3339(delivery.created_at),
        "ended_at": rfc3339(delivery.ended_at),
        "log": [
            {
                "number": row.number, "at": rfc3339(row.at), "status": row.status, "milliseconds": row.milliseconds,
                "error": row.error, "excerpt": row.excerpt,
            }
            for row in sorted(delivery.log.all(), key=lambda row: row.number)
        ],
    }  # fmt: skip
