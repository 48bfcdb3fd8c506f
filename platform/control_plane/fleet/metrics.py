"""Nodes and slots by state, for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from django.db.models import Count, Exists, OuterRef, Q
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from control_plane.core.infra.metrics import labelled
from control_plane.fleet.models import Lease, Liveness, Node, Slot


def collect() -> Iterable[Metric]:
    nodes = Counter(node.status for node in Node.objects.exclude(pool=None))
    yield labelled(GaugeMetricFamily, "oolong_nodes", "Nodes by status.", "status", dict(nodes))
    yield labelled(GaugeMetricFamily, "oolong_slots", "Slots by state.", "state", slot_states())


def slot_states() -> dict[str, int]:
    """Number of slots that are free, held, occupied by others, unhealthy, or on an unreachable node."""
    states: Counter[str] = Counter({"free": 0, "held": 0, "occupied": 0, "unhealthy": 0, "unreachable": 0})
    held = Exists(Lease.objects.filter(slot=OuterRef("pk"), released_at=None))
    rows = (
        Slot.objects.filter(present=True)
        .annotate(held=held, occupied=~Q(occupied_by=[]))
        .values_list("held", "healthy", "occupied", "node__liveness")
        .annotate(count=Count("pk"))
    )
    for is_held, healthy, occupied, liveness, count in rows:
        states[_state(is_held, healthy, occupied, liveness)] += count
    return dict(states)


def _state(held: bool, healthy: bool, occupied: bool, liveness: str) -> str:
    if held:
        return "held"
    if liveness != Liveness.READY:
        return "unreachable"
    if not healthy:
        return "unhealthy"
    return "occupied" if occupied else "free"
