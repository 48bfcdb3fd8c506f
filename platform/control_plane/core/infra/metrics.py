"""What Prometheus reads at /metrics.

Two kinds. Counts of this process (requests, ingest, sockets) are kept by prometheus_client; where several web
processes share one machine, PROMETHEUS_MULTIPROC_DIR makes any of them answer for all. What the database knows
(runs, slots, ticks, queues) is read when asked, so it is the same from every process: with several scrape
targets take max() of it, and sum() of the counts. Labels have few values: never an id, a name or a path.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from control_plane.core.api.errors import problem_response
from control_plane.core.infra.metric_sources import SOURCES

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

REQUESTS = Histogram(
    "oolong_http_request_duration_seconds",
    "Time until the answer began, by area of the API.",
    ("area", "method", "status"),
    buckets=SECONDS,
)
INGEST_BYTES = Counter(
    "oolong_ingest_bytes_total", "Bytes of outbox files and logs that were stored.", ("kind",)
)
INGEST_LINES = Counter("oolong_ingest_lines_total", "Outbox lines that were stored.")
SOCKETS = Gauge("oolong_stream_sockets", "Open live streams.", multiprocess_mode="livesum")
DROPPED_FRAMES = Counter(
    "oolong_stream_dropped_frames_total", "Frames that became a gap because their reader was too slow."
)


@never_cache
@require_safe
def metrics_view(request: HttpRequest) -> HttpResponse:
    """The text format of Prometheus, for who knows OOLONG_METRICS_TOKEN. Without one there is nothing here."""
    token = settings.ENVIRONMENT.metrics_token
    if not token:
        return problem_response(request, 404, "not_found", "metrics are off: OOLONG_METRICS_TOKEN is not set")
    given = request.headers.get("Authorization", "").encode()
    if not hmac.compare_digest(given, f"Bearer {token}".encode()):
        refusal = problem_response(
            request,
            401,
            "not_authenticated",
            "send Authorization: Bearer with the value of OOLONG_METRICS_TOKEN",
        )
        refusal["WWW-Authenticate"] = "Bearer"
        return refusal
    return HttpResponse(exposition(), content_type=CONTENT_TYPE_LATEST)


def exposition() -> bytes:
    """All of it, as text."""
    database = CollectorRegistry()
    database.register(_Database())
    return generate_latest(_of_processes()) + generate_latest(database)


class _Database:
    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        for collect in SOURCES:
            yield from collect()


def _of_processes() -> CollectorRegistry:
    shared = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if not shared:
        return REGISTRY
    forget_dead_processes(Path(shared))
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=shared)
    return registry


def forget_dead_processes(folder: Path) -> None:
    """Gauges of processes that were killed no longer count; their counters stay, for counters never fall."""
    for file in folder.glob("gauge_live*_*.db"):
        pid = re.search(r"_(\d+)\.db$", file.name)
        if pid and not Path(f"/proc/{pid[1]}").exists():
            file.unlink(missing_ok=True)


def labelled(
    kind: type[GaugeMetricFamily], name: str, help: str, label: str, values: Mapping[str, float]
) -> Metric:
    """A family with one label."""
    family = kind(name, help, labels=[label])
    for value, number in sorted(values.items()):
        family.add_metric([value], number)
    return family
