"""Playgrounds, tests of rewards and evaluators give their slots to the first run that needs them."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from control_plane.fleet.scheduler import Plan, Snapshot
from control_plane.fleet.yielding import Yielding, teams_to_spare, who_goes
from control_plane.runs.ending import begin_stop
from control_plane.runs.evaluators import ask_to_leave, evaluators_there
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.resolve import DOORS
from oolong.contracts.lifecycle import AttemptStatus, EndReason, RunStatus

YIELDING_KINDS = frozenset(DOORS)
_MAY_END = (RunStatus.STARTING, RunStatus.RUNNING)


def take_slots_back(decided: Plan, snapshot: Snapshot, queued: dict[str, Run], *, now: datetime) -> int:
    """End what yields, or ask it to leave, where a run of the queue then fits. Returns how many go."""
    if not decided.waiting:
        return 0
    evaluators = {job.pk: job for job in evaluators_there()}
    holders = _runs() + [_evaluator(job) for job in evaluators.values()]
    if not holders:
        return 0
    gone = 0
    for identity in who_goes(decided, snapshot, holders, yielding_requests=_yielding(queued)):
        if identity in evaluators:
            gone += ask_to_leave(evaluators[identity], "a run needs its slot", now=now)
            continue
        with transaction.atomic():
            run = lock_run(identity)
            if run.status in _MAY_END:
                begin_stop(run, EndReason.PREEMPTED, "a run needs its slot", now=now)
                gone += 1
    return gone


def teams_without_evaluators(decided: Plan, snapshot: Snapshot, queued: dict[str, Run]) -> frozenset[str]:
    """Teams that get no evaluator now, for a run of theirs waits that it would hinder."""
    if not decided.waiting:
        return frozenset()
    holders = _runs() + [_evaluator(job) for job in evaluators_there()]
    return teams_to_spare(decided, snapshot, holders, yielding_requests=_yielding(queued))


def _yielding(queued: dict[str, Run]) -> frozenset[str]:
    return frozenset(run.pk for run in queued.values() if run.kind in YIELDING_KINDS)


def _evaluator(job: Job) -> Yielding:
    return Yielding(
        holder=job.pk, team=job.attempt.run.project.team_id, node=job.attempt.node_id, slots=len(job.slots),
        leaves=job.stop_asked_at is not None,
    )  # fmt: skip


def _runs() -> list[Yielding]:
    attempts = (
        Attempt.objects.filter(run__kind__in=YIELDING_KINDS, run__slots_needed__gt=0)
        .exclude(status=AttemptStatus.ENDED)
        .select_related("run__project")
    )
    return [
        Yielding(
            holder=attempt.run_id, team=attempt.run.project.team_id, node=attempt.node_id,
            slots=attempt.run.slots_needed, leaves=attempt.run.status not in _MAY_END,
        )
        for attempt in attempts
    ]  # fmt: skip
