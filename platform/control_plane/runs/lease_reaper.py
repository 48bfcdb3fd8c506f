"""Nodes are judged by their silence, and runs are moved off those that fell silent, are drained, are revoked, or are of
a pool that the run's team may no longer use."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import Q

from control_plane.core.infra.clock import rfc3339
from control_plane.fleet import services as fleet
from control_plane.fleet.access import may_use, projects_of, team_may_use
from control_plane.fleet.models import Intent, Liveness, Node
from control_plane.runs.attempt_status import WORKING
from control_plane.runs.events import note, set_condition
from control_plane.runs.locking import each_locked
from control_plane.runs.models import Attempt, Run
from control_plane.runs.reconciler import advance_run
from control_plane.runs.scheduling import fits_elsewhere
from control_plane.runs.selectors import live_attempt
from control_plane.runs.spec_resolution import DOORS
from control_plane.runs.termination import ask_stop, begin_stop, end_attempt, end_with_node
from control_plane.webhooks import outbox
from oolong.contracts.lifecycle import AttemptStatus, EndReason, JobKind, RunStatus

UNRESPONSIVE = "UNRESPONSIVE"  # a condition: the run's node does not answer


def sweep_leases(*, now: datetime) -> None:
    """Judge the nodes by their silence, and move the runs that must not stay where they are."""
    for node in fleet.sweep(now=now):
        with transaction.atomic():
            told = {"node": {"id": node.pk, "name": node.name}, "last_seen_at": rfc3339(node.last_seen_at)}
            outbox.emit_to(projects_of(node.pool_id), f"node.{node.liveness.lower()}", told, now=now)
    undisturbed = Q(
        may_use(pool="node__pool", team="run__project__team"),
        node__liveness=Liveness.READY, node__intent__in=[Intent.ACTIVE, Intent.CORDONED],
    )  # fmt: skip
    live = Attempt.objects.exclude(status=AttemptStatus.ENDED)
    troubled = live.exclude(undisturbed).values_list("run_id", flat=True)
    conditioned = Run.objects.filter(conditions__contains=[UNRESPONSIVE], status__in=WORKING)
    run_ids = sorted({*troubled, *conditioned.values_list("pk", flat=True)})
    each_locked(run_ids, lambda run: _look_after(run, now=now))


def leave_node(node: Node, *, now: datetime) -> None:
    """Runs leave a revoked node at once: their attempts are fenced, and they wait for other nodes. What another process
    works on now, its next tick moves."""
    live = Attempt.objects.filter(node=node).exclude(status=AttemptStatus.ENDED).order_by("run_id")

    def leave(run: Run) -> None:
        advance_run(run, now=now)  # ends the attempt
        advance_run(run, now=now)  # fences it, and the run goes back to the queue

    each_locked(list(live.values_list("run_id", flat=True)), leave)


def _look_after(run: Run, *, now: datetime) -> None:
    attempt = live_attempt(run)
    if attempt is None or run.status not in WORKING:
        return
    node = attempt.node
    if node.liveness == Liveness.LOST:
        end_with_node(run, attempt, now=now)
    elif not team_may_use(node.pool_id, run.project.team_id):
        _move_away(run, attempt, f"the team may not use pool {node.pool_id} any more", now=now)
    elif node.liveness == Liveness.READY:
        set_condition(run, UNRESPONSIVE, False, now=now, message=f"{node.name} answers again")
        if node.intent == Intent.DRAINING and run.status == RunStatus.RUNNING:
            _move_away(run, attempt, f"{node.name} is being drained", now=now)
    elif fits_elsewhere(run, node, now=now):
        # Nothing is gained by taking the run from a node that may come back, unless another can have it now.
        end_attempt(run, attempt, EndReason.NODE_LOST, f"{node.name} does not answer", now=now)
    else:
        set_condition(run, UNRESPONSIVE, True, now=now, message=f"{node.name} does not answer")


def _move_away(run: Run, attempt: Attempt, why: str, *, now: datetime) -> None:
    """Back to the queue, with a checkpoint where a trainer runs. What has no state to keep begins again elsewhere;
    tests of rewards and playgrounds end."""
    if run.kind in DOORS:
        begin_stop(run, EndReason.PREEMPTED, why, now=now)
    elif run.status == RunStatus.RUNNING and attempt.jobs.filter(kind=JobKind.TRAINER).exists():
        if attempt.jobs.filter(kind=JobKind.TRAINER, stop_asked_at=None).exists():
            ask_stop(attempt, kinds={JobKind.TRAINER}, now=now)
            note(run, "drain", f"{why}: a checkpoint is taken, then the run moves", at=now)
    else:
        end_attempt(run, attempt, EndReason.ORPHANED, why, now=now)
