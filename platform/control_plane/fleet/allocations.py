"""Drains nodes before their provider ends them: Slurm ends a job at its time limit, or after SIGTERM.

A node that reports an end is drained with a deadline shortly before it, like one whose maintenance begins (see
fleet.maintenance): trainers save a checkpoint and their runs return to the queue as `preempted`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from control_plane.core.infra.clock import rfc3339
from control_plane.fleet import pools
from control_plane.fleet.maintenance import DRAIN_LEAD, drain_until
from control_plane.fleet.models import Node, SchedulingState

LEAD_FRACTION = 4  # of a short allocation at most a quarter is lead
SHORTEST_LEAD = timedelta(seconds=60)  # after SIGTERM Slurm leaves 30 s, however short the allocation was
MARGIN = timedelta(
    seconds=60
)  # between the deadline of the drain and the end: logs and checkpoints are uploaded
MARGIN_FRACTION = 6  # of what is left at most a sixth is margin


def drain_starts_at(node: Node) -> datetime | None:
    """When the node is drained because its provider ends it; None: it has no known end."""
    if node.ends_at is None:
        return None
    quarter = (node.ends_at - node.enrolled_at) / LEAD_FRACTION
    return node.ends_at - min(DRAIN_LEAD, max(SHORTEST_LEAD, quarter))


def drain_ending_nodes(*, now: datetime) -> None:
    """Drain the nodes that end soon. Heartbeats do it too: this is for nodes that are not heard from."""
    near = Node.objects.filter(ends_at__lte=now + DRAIN_LEAD, pool__isnull=False)
    for pk in near.order_by("pk").values_list("pk", flat=True):
        with transaction.atomic():
            node = Node.objects.select_for_update(of=("self",)).filter(pk=pk, pool__isnull=False).first()
            if node is not None:
                drain_before_end(node, now=now)


def drain_before_end(node: Node, *, now: datetime) -> None:
    """Drain the node if its end is near. Of two drains the earlier deadline counts here, because the end does not move.
    Call inside a transaction that locked its row."""
    starts_at = drain_starts_at(node)
    if starts_at is None or node.ends_at is None or node.pool is None or now < starts_at:
        return
    left = max(timedelta(0), node.ends_at - now)
    deadline = now + left - min(MARGIN, left / MARGIN_FRACTION)
    draining = node.intent == SchedulingState.DRAINING
    if draining and node.drain_deadline is not None and node.drain_deadline <= deadline:
        return
    # No window: its end does not return the node.
    drain_until(deadline, node, node.pool, window=None, cause={"ends_at": rfc3339(node.ends_at)})
    pools.publish_pool_change()
