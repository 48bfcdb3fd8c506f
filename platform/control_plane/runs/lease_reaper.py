"""Updates the liveness of nodes and moves runs off nodes that are unreachable, draining or revoked, or in a pool that
the run's team may no longer use."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import Q

from control_plane.core.infra.clock import rfc3339
from control_plane.fleet import services as fleet
from control_plane.fleet.access import may_use, projects_of, team_may_use
from control_plane.fleet.models import Liveness, Node, SchedulingState
from control_plane.runs.attempt_status import WORKING
from control_plane.runs.events import record_event, set_condition
from control_plane.runs.locking import for_each_locked
from control_plane.runs.models import Attempt, Run
from control_plane.runs.reconciler import reconcile_run
from control_plane.runs.scheduling import can_reschedule
from control_plane.runs.selectors import live_attempt
from control_plane.runs.spec_resolution import DEDICATED_ENDPOINTS
from control_plane.runs.termination import fail_attempt, fail_attempt_of_lost_node, request_stop, stop_jobs
from control_plane.webhooks import outbox
from oolong.contracts.lifecycle import AttemptStatus, EndReason, JobKind, RunStatus

UNRESPONSIVE = "UNRESPONSIVE"  # a condition: the run's node does not respond


def reap_leases(*, now: datetime) -> None:
    """Update the liveness of all nodes, and move runs that must not stay on their node."""
    for node in fleet.update_liveness(now=now):
        with transaction.atomic():
            payload = {"node": {"id": node.pk, "name": node.name}, "last_seen_at": rfc3339(node.last_seen_at)}
            outbox.emit_to(projects_of(node.pool_id), f"node.{node.liveness.lower()}", payload, now=now)
    healthy = Q(
        may_use(pool="node__pool", team="run__project__team"),
        node__liveness=Liveness.READY, node__intent__in=[SchedulingState.ACTIVE, SchedulingState.CORDONED],
    )  # fmt: skip
    live = Attempt.objects.exclude(status=AttemptStatus.ENDED)
    affected = live.exclude(healthy).values_list("run_id", flat=True)
    conditioned = Run.objects.filter(conditions__contains=[UNRESPONSIVE], status__in=WORKING)
    run_ids = sorted({*affected, *conditioned.values_list("pk", flat=True)})
    for_each_locked(run_ids, lambda run: _check_run(run, now=now))


def evacuate_node(node: Node, *, now: datetime) -> None:
    """Fence the attempts on a revoked node and queue their runs for other nodes. Locked runs wait for the next tick."""
    live = Attempt.objects.filter(node=node).exclude(status=AttemptStatus.ENDED).order_by("run_id")

    def leave(run: Run) -> None:
        reconcile_run(run, now=now)  # ends the attempt
        reconcile_run(run, now=now)  # fences it, and the run goes back to the queue

    for_each_locked(list(live.values_list("run_id", flat=True)), leave)


def _check_run(run: Run, *, now: datetime) -> None:
    attempt = live_attempt(run)
    if attempt is None or run.status not in WORKING:
        return
    node = attempt.node
    if node.liveness == Liveness.LOST:
        fail_attempt_of_lost_node(run, attempt, now=now)
    elif not team_may_use(node.pool_id, run.project.team_id):
        _move_elsewhere(run, attempt, f"the team may no longer use pool {node.pool_id}", now=now)
    elif node.liveness == Liveness.READY:
        set_condition(run, UNRESPONSIVE, False, now=now, message=f"{node.name} responds again")
        if node.intent == SchedulingState.DRAINING and run.status == RunStatus.RUNNING:
            _move_elsewhere(run, attempt, f"{node.name} is draining", now=now)
    elif can_reschedule(run, node, now=now):
        # The node may come back, so the run moves only if it can start on another node now.
        fail_attempt(run, attempt, EndReason.NODE_LOST, f"{node.name} does not respond", now=now)
    else:
        set_condition(run, UNRESPONSIVE, True, now=now, message=f"{node.name} does not respond")


def _move_elsewhere(run: Run, attempt: Attempt, why: str, *, now: datetime) -> None:
    """Move the run to another node, after a checkpoint if it has a trainer. Reward tests and playgrounds end."""
    if run.kind in DEDICATED_ENDPOINTS:
        request_stop(run, EndReason.PREEMPTED, why, now=now)
    elif run.status == RunStatus.RUNNING and attempt.jobs.filter(kind=JobKind.TRAINER).exists():
        if attempt.jobs.filter(kind=JobKind.TRAINER, stop_asked_at=None).exists():
            stop_jobs(attempt, kinds={JobKind.TRAINER}, now=now)
            record_event(run, "drain", f"{why}: the run saves a checkpoint, then moves", at=now)
    else:
        fail_attempt(run, attempt, EndReason.ORPHANED, why, now=now)
