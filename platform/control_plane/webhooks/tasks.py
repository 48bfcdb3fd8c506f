"""Celery's door: one line each. Any number of workers may deliver at once; they take different rows."""

from __future__ import annotations

from celery import shared_task

from control_plane.common import clock
from control_plane.webhooks import delivering


@shared_task
def deliver_webhooks() -> None:
    delivering.deliver_due(now=clock.now())


@shared_task
def forget_old_deliveries() -> None:
    delivering.forget_old(now=clock.now())
