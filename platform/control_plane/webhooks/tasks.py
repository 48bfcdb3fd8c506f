"""Celery tasks. One worker at a time delivers, so that slow receivers never occupy all of them."""

from __future__ import annotations

from celery import shared_task

from control_plane.core.infra import clock
from control_plane.core.infra.locks import single_instance
from control_plane.webhooks import delivery


@shared_task
@single_instance("deliver-webhooks")
def deliver_webhooks() -> None:
    delivery.deliver_due(now=clock.now())


@shared_task
def prune_deliveries() -> None:
    delivery.prune_old(now=clock.now())
