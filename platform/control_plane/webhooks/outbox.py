"""Store an event for webhooks in the transaction in which it happens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from control_plane.webhooks.event_types import EVENT_TYPES, matches
from control_plane.webhooks.models import Delivery, Webhook, WebhookEvent


def emit(project_id: str, type: str, data: Mapping[str, Any], *, now: datetime) -> None:
    """Send an event to the project's webhooks that subscribe to `type`. Costs one query if there are none.

    Raises TransactionManagementError outside `transaction.atomic`, KeyError for a type that is not in the table.
    """
    assert EVENT_TYPES[type]
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError(
            f"{type} is to be kept in the transaction of what happened"
        )
    listening = [
        webhook
        for webhook in Webhook.objects.filter(project_id=project_id, enabled=True).only("id", "events")
        if matches(webhook.events, type)
    ]
    send(listening, project_id, type, data, now=now)


def send(
    webhooks: list[Webhook], project_id: str, type: str, data: Mapping[str, Any], *, now: datetime
) -> list[Delivery]:
    """One event and a delivery of it to each of these webhooks."""
    if not webhooks:
        return []
    event = WebhookEvent.objects.create(project_id=project_id, type=type, data=dict(data), at=now)
    return Delivery.objects.bulk_create(
        Delivery(webhook=webhook, event=event, next_at=now, created_at=now) for webhook in webhooks
    )


def emit_to(projects: Iterable[str], type: str, data: Mapping[str, Any], *, now: datetime) -> None:
    """Of something that several projects share, such as a node of their pool."""
    enabled = Webhook.objects.filter(enabled=True, project__in=list(projects))
    for project_id in enabled.values_list("project_id", flat=True).distinct().order_by("project_id"):
        emit(project_id, type, data, now=now)
