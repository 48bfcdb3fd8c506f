"""Drains nodes before their maintenance and returns them at its end.

DRAIN_LEAD before the start a node is drained with the start as its deadline, so that it is empty then. At the end it
accepts jobs again, unless a person has changed its state since. Each window drains a node once: whoever uncordons it
wants it back.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from control_plane.core.infra.clock import rfc3339
from control_plane.fleet import pools
from control_plane.fleet.models import MaintenanceWindow, Node, Pool, SchedulingState

DRAIN_LEAD = timedelta(minutes=15)
SHORTEST_DRAIN = timedelta(minutes=5)  # of a window that starts at once: a trainer saves and uploads


def apply_windows(*, now: datetime) -> None:
    """Drain the nodes whose maintenance begins soon, and return those whose maintenance has ended."""
    due = MaintenanceWindow.objects.filter(starts_at__lte=now + DRAIN_LEAD, ends_at__gt=now)
    for window in due.order_by("starts_at", "pk"):
        with transaction.atomic():
            _drain(window, now=now)
    for window in MaintenanceWindow.objects.filter(ends_at__lte=now, drained_nodes__isnull=False).distinct():
        with transaction.atomic():
            return_nodes(window)


def nodes_of(window: MaintenanceWindow) -> list[str]:
    """IDs of the nodes that are maintained, as the pool is now."""
    return window.nodes or list(window.pool.nodes.order_by("pk").values_list("pk", flat=True))


def _drain(window: MaintenanceWindow, *, now: datetime) -> None:
    missing = [node for node in nodes_of(window) if node not in window.drained]
    if not missing:
        return
    deadline = max(window.starts_at, now + SHORTEST_DRAIN)
    rows = Node.objects.select_for_update(of=("self",)).filter(pk__in=missing, pool=window.pool_id)
    for node in rows.order_by("pk"):
        if node.intent == SchedulingState.DRAINING:  # by a person, who also returns it
            continue
        drain_until(deadline, node, window.pool, window=window, cause={"maintenance": window.pk})
    window.drained = [*window.drained, *missing]
    window.save(update_fields=["drained"])
    pools.publish_pool_change()


def drain_until(
    deadline: datetime,
    node: Node,
    pool: Pool,
    *,
    window: MaintenanceWindow | None,
    cause: dict[str, str | None],
) -> None:
    """Drain a node of the pool and record why; `window` returns it at its end. Call inside a transaction that locked
    its row."""
    change = {"before": node.intent, "after": SchedulingState.DRAINING, "deadline": rfc3339(deadline)}
    pools.record_audit("node.intent", pool, target=("node", node.pk, node.name), data={**change, **cause})
    node.intent, node.drain_deadline, node.maintenance = SchedulingState.DRAINING, deadline, window
    node.save(update_fields=["intent", "drain_deadline", "maintenance"])


def return_nodes(window: MaintenanceWindow) -> None:
    """The nodes that the window drains accept jobs again. Call inside a transaction."""
    for node in Node.objects.select_for_update(of=("self",)).filter(maintenance=window).order_by("pk"):
        change = {"before": node.intent, "after": SchedulingState.ACTIVE, "maintenance": window.pk}
        pools.record_audit("node.intent", window.pool, target=("node", node.pk, node.name), data=change)
        node.intent, node.drain_deadline, node.maintenance = SchedulingState.ACTIVE, None, None
        node.save(update_fields=["intent", "drain_deadline", "maintenance"])
    pools.publish_pool_change()
