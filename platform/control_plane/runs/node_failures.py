"""What follows from attempts that a node has failed: their runs avoid the node, and a node that fails several runs is
quarantined."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q, QuerySet

from control_plane.core.infra.clock import rfc3339
from control_plane.fleet import quarantine
from control_plane.fleet.access import projects_of
from control_plane.fleet.models import Liveness, Node, SchedulingState
from control_plane.fleet.quarantine import NODE_CAUSES, WINDOW, Failure
from control_plane.fleet.snapshot import Request
from control_plane.runs.models import Attempt
from control_plane.runs.trainer_gang import RENDEZVOUS
from control_plane.webhooks import outbox

AVOIDED_FOR = timedelta(hours=24)  # after the failure


def avoid_failed_nodes(requests: Iterable[Request], *, now: datetime) -> list[Request]:
    """The requests of runs, with the nodes on which their attempts failed."""
    requests = list(requests)
    failed: defaultdict[str, set[str]] = defaultdict(set)
    attempts = _on_one_node().filter(
        run__in=[one.id for one in requests], reason__in=NODE_CAUSES, ending_at__gt=now - AVOIDED_FOR
    )
    for run, node in attempts.values_list("run_id", "node_id"):
        failed[run].add(node)
    return [
        replace(one, avoid_nodes=frozenset(failed[one.id])) if one.id in failed else one for one in requests
    ]


def _on_one_node() -> QuerySet[Attempt]:
    """Attempts whose trainer is on one node. Of several, it is not known which one has failed."""
    return Attempt.objects.exclude(ports__has_key=RENDEZVOUS)


def quarantine_failing_nodes(*, now: datetime) -> None:
    """Quarantine the nodes on which attempts of several runs failed, and notify the projects of their pools."""
    failures: defaultdict[str, list[Failure]] = defaultdict(list)
    recent = _on_one_node().filter(
        Q(node__quarantine_released_at=None) | Q(ending_at__gt=F("node__quarantine_released_at")),
        reason__in=NODE_CAUSES, ending_at__gt=now - WINDOW, node__quarantined_at=None, node__pool__isnull=False,
    )  # fmt: skip
    for node, run, cause, at in recent.values_list("node_id", "run_id", "reason", "ending_at"):
        if at is not None:
            failures[node].append(Failure(run, cause, at))
    pools = set(Node.objects.filter(pk__in=failures).values_list("pool_id", flat=True))
    for pool in sorted(name for name in pools if name is not None):
        accepting = {
            node.pk: node
            for node in Node.objects.filter(
                pool=pool, liveness=Liveness.READY, intent=SchedulingState.ACTIVE, quarantined_at=None
            )
        }
        for node, reason in quarantine.nodes_to_quarantine(failures, accepting, now=now).items():
            with transaction.atomic():
                row = quarantine.quarantine(accepting[node], reason, now=now)
                payload = {"node": {"id": row.pk, "name": row.name}, "pool": pool, "reason": reason}
                outbox.emit_to(
                    projects_of(pool), "node.quarantined", {**payload, "at": rfc3339(now)}, now=now
                )
