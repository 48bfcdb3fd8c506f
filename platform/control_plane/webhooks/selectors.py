"""Every read of webhooks."""

from __future__ import annotations

from django.db.models import Prefetch, QuerySet

from control_plane.accounts.identity.caller import Caller
from control_plane.core.api.errors import or_not_found
from control_plane.webhooks.models import Delivery, DeliveryTry, Webhook

_LOG = Prefetch("log", DeliveryTry.objects.order_by("number"))


def webhooks(caller: Caller) -> QuerySet[Webhook]:
    return Webhook.objects.filter(project=caller.project).select_related("created_by")


def webhook_for(caller: Caller, webhook_id: str) -> Webhook:
    return or_not_found(webhooks(caller).filter(pk=webhook_id).first(), "webhook", webhook_id)


def deliveries(webhook: Webhook) -> QuerySet[Delivery]:
    return webhook.deliveries.select_related("event").prefetch_related(_LOG)


def delivery_for(caller: Caller, delivery_id: str) -> Delivery:
    own = Delivery.objects.filter(webhook__project=caller.project, pk=delivery_id)
    return or_not_found(
        own.select_related("event", "webhook").prefetch_related(_LOG).first(), "delivery", delivery_id
    )
