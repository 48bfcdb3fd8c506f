"""Webhooks, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.request_spec import delete, get, page, patch, post


class AsyncWebhooks(AsyncResource):
    def list(self) -> AsyncIterator[models.Webhook]:
        return self._pages(page("webhooks", models.Webhook))

    async def create(self, name: str, url: str, events: Sequence[str]) -> models.CreatedWebhook:
        """A webhook and its secret, which is shown this once. `events`: types, or patterns such as run.*"""
        body = {"name": name, "url": url, "events": list(events)}
        return await self._send(post("webhooks", models.CreatedWebhook, body=body))

    async def get(self, webhook_id: str) -> models.Webhook:
        return await self._send(get("webhooks/{}", models.Webhook, webhook_id))

    async def update(self, webhook_id: str, **fields: Any) -> models.Webhook:
        """Change name, url, events or enabled."""
        return await self._send(patch("webhooks/{}", models.Webhook, webhook_id, body=fields))

    async def delete(self, webhook_id: str) -> None:
        await self._send(delete("webhooks/{}", webhook_id))

    async def rotate_secret(self, webhook_id: str) -> models.CreatedWebhook:
        """A new secret, shown this once; for a day both sign."""
        return await self._send(post("webhooks/{}/rotate-secret", models.CreatedWebhook, webhook_id))

    async def test(self, webhook_id: str) -> models.WebhookDelivery:
        """Send a webhook.test to this webhook alone."""
        return await self._send(post("webhooks/{}/test", models.WebhookDelivery, webhook_id))

    def deliveries(self, webhook_id: str) -> AsyncIterator[models.WebhookDelivery]:
        """How each telling went, newest first."""
        return self._pages(page("webhooks/{}/deliveries", models.WebhookDelivery, webhook_id))

    async def delivery(self, delivery_id: str) -> models.WebhookDelivery:
        return await self._send(get("webhook-deliveries/{}", models.WebhookDelivery, delivery_id))

    async def redeliver(self, delivery_id: str) -> models.WebhookDelivery:
        """Send the same event once more, under the same webhook-id."""
        return await self._send(post("webhook-deliveries/{}/redeliver", models.WebhookDelivery, delivery_id))
