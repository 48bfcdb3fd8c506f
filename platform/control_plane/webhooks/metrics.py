"""Prometheus metrics of webhook deliveries."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Count, Min
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from control_plane.core.infra import clock
from control_plane.core.infra.metrics import labelled
from control_plane.webhooks.models import Delivery, DeliveryState, Webhook


def collect() -> Iterable[Metric]:
    counts = dict.fromkeys((state.value for state in DeliveryState), 0)
    counts |= dict(Delivery.objects.values_list("state").annotate(count=Count("pk")))
    yield labelled(
        GaugeMetricFamily, "oolong_webhook_deliveries", "Deliveries that are kept, by state.", "state", counts
    )
    oldest = Delivery.objects.filter(state=DeliveryState.PENDING).aggregate(at=Min("created_at"))["at"]
    waited = max(0.0, (clock.now() - oldest).total_seconds()) if oldest else 0.0
    yield GaugeMetricFamily(
        "oolong_webhook_oldest_pending_seconds", "Age of the oldest delivery that has not arrived.", waited
    )
    yield GaugeMetricFamily(
        "oolong_webhooks_disabled",
        "Webhooks that are switched off.",
        Webhook.objects.filter(enabled=False).count(),
    )
