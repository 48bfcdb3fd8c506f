"""Updates the liveness of nodes and moves runs off nodes that are unreachable, draining or revoked, or in a pool that
the run's team may no longer use (runs.evacuation)."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import Q

from control_plane.core.infra.clock import rfc3339
from control_plane.fleet import allocations, maintenance
from control_plane.fleet import services as fleet
from control_plane.fleet.access import may_use, projects_of, team_may_use
from control_plane.fleet.models import Liveness, SchedulingState
from control_plane.runs.attempt_status import WORKING
from control_plane.runs.evacuation import NODE_DRAINING, end_at_deadline, leave_draining_node, leave_node
from control_plane.runs.events import set_condition
from control_plane.runs.locking import for_each_locked
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.node_failures import quarantine_failing_nodes
from control_plane.runs.remote_engines import review_remote_engines
from control_plane.runs.scheduling import can_reschedule
from control_plane.runs.selectors import live_attempt
from control_plane.runs.termination import fail_attempt, fail_attempt_of_lost_node
from control_plane.runs.trainer_gang import node_to_leave
from control_plane.webhooks import outbox
from oolong.contracts.lifecycle import AttemptStatus, EndReason, JobKind

UNRESPONSIVE = "UNRESPONSIVE"  # a condition: the run's node does not respond


def reap_leases(*, now: datetime) -> None:
    """Update the liveness of all nodes, drain and quarantine nodes, and move runs that must not stay on their node."""
    maintenance.apply_windows(now=now)
    allocations.drain_ending_nodes(now=now)
    for node in fleet.update_liveness(now=now):
        with transaction.atomic():
            payload = {"node": {"id": node.pk, "name": node.name}, "last_seen_at": rfc3339(node.last_seen_at)}
            outbox.emit_to(projects_of(node.pool_id), f"node.{node.liveness.lower()}", payload, now=now)
    quarantine_failing_nodes(now=now)
    healthy = Q(
        may_use(pool="node__pool", team="run__project__team"),
        node__liveness=Liveness.READY, node__intent__in=[SchedulingState.ACTIVE, SchedulingState.CORDONED],
    )  # fmt: skip
    live = Attempt.objects.exclude(status=AttemptStatus.ENDED)
    healthy_node = Q(
        node__liveness=Liveness.READY, node__intent__in=[SchedulingState.ACTIVE, SchedulingState.CORDONED]
    )
    followers = Job.objects.filter(kind=JobKind.TRAINER, node__isnull=False).exclude(healthy_node)
    affected = live.filter(~healthy | Q(pk__in=followers.values("attempt"))).values_list("run_id", flat=True)
    conditioned = Run.objects.filter(
        Q(conditions__contains=[UNRESPONSIVE]) | Q(conditions__contains=[NODE_DRAINING]), status__in=WORKING
    )
    run_ids = sorted({*affected, *conditioned.values_list("pk", flat=True)})
    for_each_locked(run_ids, lambda run: _check_run(run, now=now))
    review_remote_engines(now=now)


def _check_run(run: Run, *, now: datetime) -> None:
    attempt = live_attempt(run)
    if attempt is None:
        return
    node = node_to_leave(attempt, now=now)
    draining = node.intent == SchedulingState.DRAINING
    past_deadline = draining and node.drain_deadline is not None and now >= node.drain_deadline
    if node.liveness == Liveness.LOST and run.status in WORKING:
        fail_attempt_of_lost_node(run, attempt, node, now=now)
    elif past_deadline:
        end_at_deadline(run, attempt, node, now=now)
    elif run.status not in WORKING:
        return
    elif not team_may_use(node.pool_id, run.project.team_id):
        leave_node(run, attempt, f"the team may no longer use pool {node.pool_id}", now=now)
    elif node.liveness == Liveness.READY:
        set_condition(run, UNRESPONSIVE, False, now=now, message=f"{node.name} responds again")
        if draining:
            leave_draining_node(run, attempt, node, now=now)
        else:
            set_condition(run, NODE_DRAINING, False, now=now, message=f"{node.name} is no longer drained")
    elif can_reschedule(run, node, now=now):
        # The node may come back, so the run moves only if it can start on another node now.
        cause = EndReason.PREEMPTED if draining or attempt.reason else EndReason.NODE_LOST
        fail_attempt(run, attempt, cause, f"{node.name} does not respond", now=now)
    else:
        set_condition(run, UNRESPONSIVE, True, now=now, message=f"{node.name} does not respond")
