"""Webhooks, as the client offers them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from oolong.client import calls, models
from oolong.client.sync.connection import Connection


class Webhooks:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> Iterator[models.Webhook]:
        return self._connection.pages(calls.webhooks.page())

    def create(self, name: str, url: str, events: Sequence[str]) -> models.CreatedWebhook:
        """A webhook and its secret, which is shown this once. `events`: types, or patterns such as run.*"""
        return self._connection.send(calls.webhooks.create(name, url, events))

    def get(self, webhook_id: str) -> models.Webhook:
        return self._connection.send(calls.webhooks.get(webhook_id))

    def update(self, webhook_id: str, **fields: Any) -> models.Webhook:
        """Change name, url, events or enabled."""
        return self._connection.send(calls.webhooks.update(webhook_id, fields))

    def delete(self, webhook_id: str) -> None:
        self._connection.send(calls.webhooks.delete(webhook_id))

    def rotate_secret(self, webhook_id: str) -> models.CreatedWebhook:
        """A new secret, shown this once; for a day both sign."""
        return self._connection.send(calls.webhooks.rotate_secret(webhook_id))

    def test(self, webhook_id: str) -> models.WebhookDelivery:
        """Send a webhook.test to this webhook alone."""
        return self._connection.send(calls.webhooks.test(webhook_id))

    def deliveries(self, webhook_id: str) -> Iterator[models.WebhookDelivery]:
        """How each telling went, newest first."""
        return self._connection.pages(calls.webhooks.deliveries(webhook_id))

    def delivery(self, delivery_id: str) -> models.WebhookDelivery:
        return self._connection.send(calls.webhooks.delivery(delivery_id))

    def redeliver(self, delivery_id: str) -> models.WebhookDelivery:
        """Send the same event once more, under the same webhook-id."""
        return self._connection.send(calls.webhooks.redeliver(delivery_id))
