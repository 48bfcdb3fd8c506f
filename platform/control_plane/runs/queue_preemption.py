"""Preempts playgrounds, reward tests, evaluators and engines that joined later, for the first queued run that needs
their slots."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from control_plane.fleet import preemption
from control_plane.fleet.preemption import Preemptible, select_victims
from control_plane.fleet.scheduler import Plan, Snapshot
from control_plane.fleet.selectors import leased_slots
from control_plane.runs import elastic_engines
from control_plane.runs.evaluators import active_evaluators, request_release
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.spec_resolution import DEDICATED_ENDPOINTS
from control_plane.runs.termination import request_stop
from oolong.contracts.lifecycle import AttemptStatus, EndReason, RunStatus

PREEMPTIBLE_KINDS = frozenset(DEDICATED_ENDPOINTS)
_STOPPABLE = (RunStatus.STARTING, RunStatus.RUNNING)


def preempt_for_queue(plan: Plan, snapshot: Snapshot, queued: dict[str, Run], *, now: datetime) -> int:
    """Stop borrowers of slots where a queued run then fits. Returns how many were stopped."""
    if not plan.waiting:
        return 0
    evaluators = {job.pk: job for job in active_evaluators().filter(attempt__node__pool=snapshot.pool)}
    joined = {job.pk: job for job in elastic_engines.joined_engines(snapshot.pool)}
    holders = _preemptible_runs(snapshot.pool) + [
        _preemptible_job(job) for job in (*evaluators.values(), *joined.values())
    ]
    if not holders:
        return 0
    stopped = 0
    for identity in select_victims(
        plan, snapshot, holders, preemptible_requests=_preemptible_requests(queued)
    ):
        if identity in evaluators:
            stopped += request_release(evaluators[identity], "a run needs its slot", now=now)
        elif identity in joined:
            stopped += elastic_engines.reclaim_engine(joined[identity], now=now)
        else:
            stopped += _end_run(identity, now=now)
    return stopped


def _end_run(run_id: str, *, now: datetime) -> bool:
    with transaction.atomic():
        run = lock_run(run_id)
        if run.status not in _STOPPABLE:
            return False
        request_stop(run, EndReason.PREEMPTED, "a run needs its slot", now=now)
    return True


def teams_without_headroom(plan: Plan, snapshot: Snapshot, queued: dict[str, Run]) -> frozenset[str]:
    """Teams that get no more evaluators or engines now, because these would delay a waiting run of the team."""
    if not plan.waiting:
        return frozenset()
    jobs = [
        *active_evaluators().filter(attempt__node__pool=snapshot.pool),
        *elastic_engines.joined_engines(snapshot.pool),
    ]
    holders = _preemptible_runs(snapshot.pool) + [_preemptible_job(job) for job in jobs]
    return preemption.teams_without_headroom(
        plan, snapshot, holders, preemptible_requests=_preemptible_requests(queued)
    )


def _preemptible_requests(queued: dict[str, Run]) -> frozenset[str]:
    return frozenset(run.pk for run in queued.values() if run.kind in PREEMPTIBLE_KINDS)


def _preemptible_job(job: Job) -> Preemptible:
    return Preemptible(
        holder=job.pk, team=job.attempt.run.project.team_id, node=job.attempt.node_id, slots=tuple(job.slots),
        leaving=job.stop_asked_at is not None,
    )  # fmt: skip


def _preemptible_runs(pool: str) -> list[Preemptible]:
    attempts = (
        Attempt.objects.filter(run__kind__in=PREEMPTIBLE_KINDS, run__slots_needed__gt=0, node__pool=pool)
        .exclude(status=AttemptStatus.ENDED)
        .select_related("run__project")
    )
    slots = leased_slots([attempt.pk for attempt in attempts])
    return [
        Preemptible(
            holder=attempt.run_id, team=attempt.run.project.team_id, node=attempt.node_id,
            slots=slots[attempt.pk], leaving=attempt.run.status not in _STOPPABLE,
        )
        for attempt in attempts
    ]  # fmt: skip
