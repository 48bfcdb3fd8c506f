"""Webhooks and how their deliveries went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec
from oolong.client.models import CreatedWebhook, Page, Webhook, WebhookDelivery


def page() -> RequestSpec[Page[Webhook]]:
    return request_spec.page("webhooks", Webhook)


def create(name: str, url: str, events: Sequence[str]) -> RequestSpec[CreatedWebhook]:
    body = {"name": name, "url": url, "events": list(events)}
    return request_spec.post("webhooks", CreatedWebhook, body=body)


def get(webhook_id: str) -> RequestSpec[Webhook]:
    return request_spec.get("webhooks/{}", Webhook, webhook_id)


def update(webhook_id: str, fields: dict[str, Any]) -> RequestSpec[Webhook]:
    return request_spec.patch("webhooks/{}", Webhook, webhook_id, body=fields)


def delete(webhook_id: str) -> RequestSpec[None]:
    return request_spec.delete("webhooks/{}", webhook_id)


def rotate_secret(webhook_id: str) -> RequestSpec[CreatedWebhook]:
    return request_spec.post("webhooks/{}/rotate-secret", CreatedWebhook, webhook_id)


def test(webhook_id: str) -> RequestSpec[WebhookDelivery]:
    return request_spec.post("webhooks/{}/test", WebhookDelivery, webhook_id)


def deliveries(webhook_id: str) -> RequestSpec[Page[WebhookDelivery]]:
    return request_spec.page("webhooks/{}/deliveries", WebhookDelivery, webhook_id)


def delivery(delivery_id: str) -> RequestSpec[WebhookDelivery]:
    return request_spec.get("webhook-deliveries/{}", WebhookDelivery, delivery_id)


def redeliver(delivery_id: str) -> RequestSpec[WebhookDelivery]:
    return request_spec.post("webhook-deliveries/{}/redeliver", WebhookDelivery, delivery_id)
