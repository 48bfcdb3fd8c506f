"""Webhooks and how their deliveries went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call
from oolong.client.models import CreatedWebhook, Page, Webhook, WebhookDelivery


def page() -> Call[Page[Webhook]]:
    return call.page("webhooks", Webhook)


def create(name: str, url: str, events: Sequence[str]) -> Call[CreatedWebhook]:
    body = {"name": name, "url": url, "events": list(events)}
    return call.post("webhooks", CreatedWebhook, body=body)


def get(webhook_id: str) -> Call[Webhook]:
    return call.get("webhooks/{}", Webhook, webhook_id)


def update(webhook_id: str, fields: dict[str, Any]) -> Call[Webhook]:
    return call.patch("webhooks/{}", Webhook, webhook_id, body=fields)


def delete(webhook_id: str) -> Call[None]:
    return call.delete("webhooks/{}", webhook_id)


def rotate_secret(webhook_id: str) -> Call[CreatedWebhook]:
    return call.post("webhooks/{}/rotate-secret", CreatedWebhook, webhook_id)


def test(webhook_id: str) -> Call[WebhookDelivery]:
    return call.post("webhooks/{}/test", WebhookDelivery, webhook_id)


def deliveries(webhook_id: str) -> Call[Page[WebhookDelivery]]:
    return call.page("webhooks/{}/deliveries", WebhookDelivery, webhook_id)


def delivery(delivery_id: str) -> Call[WebhookDelivery]:
    return call.get("webhook-deliveries/{}", WebhookDelivery, delivery_id)


def redeliver(delivery_id: str) -> Call[WebhookDelivery]:
    return call.post("webhook-deliveries/{}/redeliver", WebhookDelivery, delivery_id)
