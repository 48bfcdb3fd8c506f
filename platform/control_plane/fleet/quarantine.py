"""Quarantines nodes on which attempts of several runs failed for reasons of the infrastructure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from control_plane.fleet import pools
from control_plane.fleet.models import Node
from control_plane.fleet.services import lock_managed
from oolong.contracts.lifecycle import EndReason

MIN_RUNS = 3  # whose attempts failed
WINDOW = timedelta(hours=6)
SAME_INCIDENT = timedelta(minutes=10)  # a node that goes down fails all its runs at once
# Causes that lie in the node or in its connection.
NODE_CAUSES = (EndReason.NODE_LOST, EndReason.ORPHANED, EndReason.PREPARATION_FAILED)


@dataclass(frozen=True)
class Failure:
    """An attempt that ended for one of NODE_CAUSES."""

    run: str
    cause: str
    at: datetime


def incidents(failures: Sequence[Failure], *, now: datetime) -> list[Failure]:
    """The newest failures of different runs within WINDOW, one for each outage of the node."""
    found: list[Failure] = []
    for failure in sorted(failures, key=lambda one: (one.at, one.run), reverse=True):
        same = any(
            other.run == failure.run
            or (
                failure.cause != EndReason.PREPARATION_FAILED
                and other.cause != EndReason.PREPARATION_FAILED
                and other.at - failure.at < SAME_INCIDENT
            )
            for other in found
        )
        if now - failure.at <= WINDOW and not same:
            found.append(failure)
    return found


def nodes_to_quarantine(
    failures: Mapping[str, Sequence[Failure]], accepting: Collection[str], *, now: datetime
) -> dict[str, str]:
    """Node → reason, for nodes of one pool with MIN_RUNS incidents. At least half of the nodes that accept jobs stay:
    when most of them fail, the cause lies elsewhere."""
    found: dict[str, str] = {}
    counted = {node: incidents(of_node, now=now) for node, of_node in failures.items() if node in accepting}
    for node in sorted(counted, key=lambda one: (-len(counted[one]), one)):
        enough = len(counted[node]) >= MIN_RUNS
        if enough and 2 * (len(accepting) - len(found) - 1) >= len(accepting):
            causes = sorted({one.cause for one in counted[node]})
            found[node] = (
                f"attempts of {len(counted[node])} runs failed here within {WINDOW.seconds // 3600} hours: "
                f"{', '.join(causes)}"
            )
    return found


def quarantine(node: Node, reason: str, *, now: datetime) -> Node:
    """Start no new jobs on the node until an admin releases it; running jobs continue. The newest reason stays."""
    with transaction.atomic():
        node, pool = lock_managed(node)
        node.quarantined_at, node.quarantine_reason = node.quarantined_at or now, reason[:400]
        node.save(update_fields=["quarantined_at", "quarantine_reason"])
        data = {"reason": node.quarantine_reason}
        pools.record_audit("node.quarantine", pool, target=("node", node.pk, node.name), data=data)
        pools.publish_pool_change()
    return node


def release(node: Node, *, now: datetime) -> Node:
    """New jobs start on the node again. Its failures until now do not count any more."""
    with transaction.atomic():
        node, pool = lock_managed(node)
        data = {"reason": node.quarantine_reason}
        node.quarantined_at, node.quarantine_reason, node.quarantine_released_at = None, "", now
        node.save(update_fields=["quarantined_at", "quarantine_reason", "quarantine_released_at"])
        pools.record_audit("node.release", pool, target=("node", node.pk, node.name), data=data)
        pools.publish_pool_change()
    return node
