"""Webhooks, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from oolong.client import endpoints, models
from oolong.client.aio.connection import AsyncConnection


class AsyncWebhooks:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(self) -> AsyncIterator[models.Webhook]:
        return self._connection.pages(endpoints.webhooks.page())

    async def create(self, name: str, url: str, events: Sequence[str]) -> models.CreatedWebhook:
        """A webhook and its secret, which is shown this once. `events`: types, or patterns such as run.*"""
        return await self._connection.send(endpoints.webhooks.create(name, url, events))

    async def get(self, webhook_id: str) -> models.Webhook:
        return await self._connection.send(endpoints.webhooks.get(webhook_id))

    async def update(self, webhook_id: str, **fields: Any) -> models.Webhook:
        """Change name, url, events or enabled."""
        return await self._connection.send(endpoints.webhooks.update(webhook_id, fields))

    async def delete(self, webhook_id: str) -> None:
        await self._connection.send(endpoints.webhooks.delete(webhook_id))

    async def rotate_secret(self, webhook_id: str) -> models.CreatedWebhook:
        """A new secret, shown this once; for a day both sign."""
        return await self._connection.send(endpoints.webhooks.rotate_secret(webhook_id))

    async def test(self, webhook_id: str) -> models.WebhookDelivery:
        """Send a webhook.test to this webhook alone."""
        return await self._connection.send(endpoints.webhooks.test(webhook_id))

    def deliveries(self, webhook_id: str) -> AsyncIterator[models.WebhookDelivery]:
        """How each telling went, newest first."""
        return self._connection.pages(endpoints.webhooks.deliveries(webhook_id))

    async def delivery(self, delivery_id: str) -> models.WebhookDelivery:
        return await self._connection.send(endpoints.webhooks.delivery(delivery_id))

    async def redeliver(self, delivery_id: str) -> models.WebhookDelivery:
        """Send the same event once more, under the same webhook-id."""
        return await self._connection.send(endpoints.webhooks.redeliver(delivery_id))
