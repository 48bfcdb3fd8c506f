"""Nodes are judged by their silence, and runs are moved off those that fell silent or are to be emptied."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from control_plane.common.clock import rfc3339
from control_plane.fleet import services as fleet
from control_plane.fleet.models import Intent, Liveness
from control_plane.runs.ending import ask_stop, end_attempt
from control_plane.runs.events import note, set_condition
from control_plane.runs.locking import each_locked
from control_plane.runs.models import Attempt, Run
from control_plane.runs.placement import fits_elsewhere
from control_plane.runs.selectors import live_attempt
from control_plane.runs.status import WORKING
from control_plane.webhooks import outbox
from oolong.contracts.lifecycle import AttemptStatus, EndReason, JobKind, RunStatus

UNRESPONSIVE = "UNRESPONSIVE"  # a condition: the run's node does not answer


def sweep_leases(*, now: datetime) -> None:
    """Judge the nodes by their silence, and move runs off those that fell silent or are to be emptied."""
    for node in fleet.sweep(now=now):
        with transaction.atomic():
            told = {"node": {"id": node.pk, "name": node.name}, "last_seen_at": rfc3339(node.last_seen_at)}
            outbox.emit_everywhere(f"node.{node.liveness.lower()}", told, now=now)
    troubled = (
        Attempt.objects.exclude(status=AttemptStatus.ENDED)
        .exclude(node__liveness=Liveness.READY, node__intent__in=[Intent.ACTIVE, Intent.CORDONED])
        .values_list("run_id", flat=True)
    )
    conditioned = Run.objects.filter(conditions__contains=[UNRESPONSIVE], status__in=WORKING)
    run_ids = sorted({*troubled, *conditioned.values_list("pk", flat=True)})
    each_locked(run_ids, lambda run: _look_after(run, now=now))


def _look_after(run: Run, *, now: datetime) -> None:
    attempt = live_attempt(run)
    if attempt is None or run.status not in WORKING:
        return
    node = attempt.node
    if node.liveness == Liveness.READY:
        set_condition(run, UNRESPONSIVE, False, now=now, message=f"{node.name} answers again")
        if node.intent == Intent.DRAINING and run.status == RunStatus.RUNNING:
            _drain(run, attempt, now=now)
    elif node.liveness == Liveness.LOST:
        end_attempt(run, attempt, EndReason.NODE_LOST, f"{node.name} is lost", now=now)
    elif fits_elsewhere(run, node, now=now):
        # Nothing is gained by taking the run from a node that may come back, unless another can have it now.
        end_attempt(run, attempt, EndReason.NODE_LOST, f"{node.name} does not answer", now=now)
    else:
        set_condition(run, UNRESPONSIVE, True, now=now, message=f"{node.name} does not answer")


def _drain(run: Run, attempt: Attempt, *, now: datetime) -> None:
    if attempt.jobs.filter(kind=JobKind.TRAINER, stop_asked_at=None).exists():
        ask_stop(attempt, kinds={JobKind.TRAINER}, now=now)
        note(
            run,
            "drain",
            f"{attempt.node.name} is being drained: a checkpoint is taken, then the run moves",
            at=now,
        )
