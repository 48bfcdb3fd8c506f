"""Webhooks and their deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from oolong.client.models.answer import Answer


class Webhook(Answer):
    id: str
    name: str
    url: str
    events: list[str]
    enabled: bool
    disabled_reason: str = ""
    failing_since: datetime | None = None
    previous_secret_until: datetime | None = None
    created_at: datetime


class CreatedWebhook(Webhook):
    secret: str  # whsec_…, shown once


class WebhookEvent(Answer):
    id: str  # the header webhook-id
    type: str
    at: datetime
    data: dict[str, Any]


class DeliveryTry(Answer):
    number: int
    at: datetime
    status: int | None = None  # None: there was no answer
    milliseconds: int
    error: str = ""
    excerpt: str = ""


class WebhookDelivery(Answer):
    id: str
    webhook: str
    event: WebhookEvent
    state: str  # PENDING, DELIVERED, FAILED
    message: str = ""
    tries: int = 0
    next_at: datetime | None = None
    log: list[DeliveryTry] = []
