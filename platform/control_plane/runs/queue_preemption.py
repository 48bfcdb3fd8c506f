"""Playgrounds, tests of rewards, evaluators and engines that joined a running run give their slots to the first run
that needs them."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from control_plane.fleet import preemption
from control_plane.fleet.preemption import Yielding, who_goes
from control_plane.fleet.scheduler import Plan, Snapshot
from control_plane.fleet.selectors import leased_slots
from control_plane.runs import elastic_engines
from control_plane.runs.evaluators import ask_to_leave, evaluators_there
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.spec_resolution import DOORS
from control_plane.runs.termination import begin_stop
from oolong.contracts.lifecycle import AttemptStatus, EndReason, RunStatus

YIELDING_KINDS = frozenset(DOORS)
_MAY_END = (RunStatus.STARTING, RunStatus.RUNNING)


def take_slots_back(decided: Plan, snapshot: Snapshot, queued: dict[str, Run], *, now: datetime) -> int:
    """End what yields, or ask it to leave, where a run of the queue then fits. Returns how many go."""
    if not decided.waiting:
        return 0
    evaluators = {job.pk: job for job in evaluators_there().filter(attempt__node__pool=snapshot.pool)}
    joined = {job.pk: job for job in elastic_engines.joined_engines(snapshot.pool)}
    holders = _runs(snapshot.pool) + [_job(job) for job in (*evaluators.values(), *joined.values())]
    if not holders:
        return 0
    gone = 0
    for identity in who_goes(decided, snapshot, holders, yielding_requests=_yielding(queued)):
        if identity in evaluators:
            gone += ask_to_leave(evaluators[identity], "a run needs its slot", now=now)
        elif identity in joined:
            gone += elastic_engines.take_back(joined[identity], now=now)
        else:
            gone += _end_run(identity, now=now)
    return gone


def _end_run(run_id: str, *, now: datetime) -> bool:
    with transaction.atomic():
        run = lock_run(run_id)
        if run.status not in _MAY_END:
            return False
        begin_stop(run, EndReason.PREEMPTED, "a run needs its slot", now=now)
    return True


def teams_to_spare(decided: Plan, snapshot: Snapshot, queued: dict[str, Run]) -> frozenset[str]:
    """Teams that get no evaluator and no engine now, because a run of theirs waits that it would hinder."""
    if not decided.waiting:
        return frozenset()
    jobs = [
        *evaluators_there().filter(attempt__node__pool=snapshot.pool),
        *elastic_engines.joined_engines(snapshot.pool),
    ]
    holders = _runs(snapshot.pool) + [_job(job) for job in jobs]
    return preemption.teams_to_spare(decided, snapshot, holders, yielding_requests=_yielding(queued))


def _yielding(queued: dict[str, Run]) -> frozenset[str]:
    return frozenset(run.pk for run in queued.values() if run.kind in YIELDING_KINDS)


def _job(job: Job) -> Yielding:
    return Yielding(
        holder=job.pk, team=job.attempt.run.project.team_id, node=job.attempt.node_id, slots=tuple(job.slots),
        leaves=job.stop_asked_at is not None,
    )  # fmt: skip


def _runs(pool: str) -> list[Yielding]:
    attempts = (
        Attempt.objects.filter(run__kind__in=YIELDING_KINDS, run__slots_needed__gt=0, node__pool=pool)
        .exclude(status=AttemptStatus.ENDED)
        .select_related("run__project")
    )
    slots = leased_slots([attempt.pk for attempt in attempts])
    return [
        Yielding(
            holder=attempt.run_id, team=attempt.run.project.team_id, node=attempt.node_id,
            slots=slots[attempt.pk], leaves=attempt.run.status not in _MAY_END,
        )
        for attempt in attempts
    ]  # fmt: skip
