"""Prometheus metrics: runs by status, the queue, and telemetry that nodes have not shipped."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Count, Min
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from control_plane.core.infra import clock
from control_plane.core.infra.metrics import labelled
from control_plane.runs.models import Job, Run
from oolong.contracts.lifecycle import AttemptStatus, RunStatus


def collect() -> Iterable[Metric]:
    counts = dict.fromkeys((status.value for status in RunStatus), 0)
    counts |= dict(Run.objects.values_list("status").annotate(count=Count("pk")))
    yield labelled(GaugeMetricFamily, "oolong_runs", "Runs by status.", "status", counts)
    oldest = Run.objects.filter(status=RunStatus.QUEUED).aggregate(at=Min("status_at"))["at"]
    waited = max(0.0, (clock.now() - oldest).total_seconds()) if oldest else 0.0
    yield GaugeMetricFamily("oolong_queue_depth", "Runs that wait for slots.", counts[RunStatus.QUEUED])
    yield GaugeMetricFamily("oolong_queue_oldest_seconds", "How long the first of them has waited.", waited)
    yield GaugeMetricFamily(
        "oolong_outbox_lag_bytes",
        "Bytes that jobs have written and this server has not stored.",
        _unshipped_bytes(),
    )


def _unshipped_bytes() -> int:
    jobs = Job.objects.exclude(attempt__status=AttemptStatus.ENDED).values_list("outbox", "outbox_read")
    return sum(max(0, size - read.get(file, 0)) for outbox, read in jobs for file, size in outbox.items())
