"""What the workers' ticks did, for Prometheus and for the health of the installation."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from control_plane.core.infra.clock import rfc3339
from control_plane.core.models import Tick


def collect() -> Iterable[Metric]:
    """The ticks of the scheduler and of the other clocks, over all workers."""
    runs = CounterMetricFamily("oolong_ticks", "Ticks that ran to their end.", labels=["tick"])
    failures = CounterMetricFamily(
        "oolong_tick_failures", "Ticks that ended in an exception.", labels=["tick"]
    )
    spent = CounterMetricFamily("oolong_tick_seconds", "Time spent in ticks.", labels=["tick"])
    last = GaugeMetricFamily("oolong_tick_last_seconds", "Duration of the newest tick.", labels=["tick"])
    at = GaugeMetricFamily(
        "oolong_tick_last_timestamp_seconds", "When the newest tick ended, Unix time.", labels=["tick"]
    )
    for tick in Tick.objects.order_by("name"):
        runs.add_metric([tick.name], tick.count)
        failures.add_metric([tick.name], tick.failures)
        spent.add_metric([tick.name], tick.seconds)
        last.add_metric([tick.name], tick.last_seconds)
        at.add_metric([tick.name], tick.last_at.timestamp())
    return [runs, failures, spent, last, at]


# What a worker does in the background, by the name of its tick. While all is idle, each runs every 30 seconds.
TICKS = {"scheduler": "place-jobs", "webhooks": "deliver-webhooks"}
OVERDUE = timedelta(seconds=90)


def ticks_health(*, now: datetime) -> dict[str, str]:
    """For each of TICKS: ok, or since when it has not run."""
    last = dict(Tick.objects.filter(name__in=TICKS.values()).values_list("name", "last_at"))
    return {part: _tick_health(last.get(tick), now=now) for part, tick in TICKS.items()}


def _tick_health(last: datetime | None, *, now: datetime) -> str:
    if last is None:
        return "has not run yet"
    return "ok" if now - last <= OVERDUE else f"has not run since {rfc3339(last)}"
