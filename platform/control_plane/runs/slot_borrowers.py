"""Playgrounds, reward tests, evaluators and engines that joined later: they hold slots that were idle, and the
scheduler preempts them for a queued run that needs their slots."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from control_plane.fleet.selectors import leased_slots
from control_plane.fleet.snapshot import Holder
from control_plane.runs.elastic_engines import joined_engines, reclaim_engine
from control_plane.runs.evaluators import active_evaluators, request_release
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Attempt, Job
from control_plane.runs.slot_requests import PREEMPTIBLE_KINDS
from control_plane.runs.termination import request_stop
from oolong.contracts.lifecycle import AttemptStatus, EndReason, RunStatus

_STOPPABLE = (RunStatus.STARTING, RunStatus.RUNNING)


def slot_borrowers(pool: str) -> list[Holder]:
    jobs = [*active_evaluators().filter(attempt__node__pool=pool), *joined_engines(pool)]
    return [*_preemptible_runs(pool), *(_preemptible_job(job) for job in jobs)]


def preempt(holder: str, *, now: datetime) -> bool:
    """Stop a borrower: a job, or a run. False when it is stopping already or has ended."""
    job = Job.objects.select_related("attempt").filter(pk=holder).first()
    if job is None:
        return _end_run(holder, now=now)
    if job.evaluates:
        return request_release(job, "a run needs its slot", now=now)
    return reclaim_engine(job, now=now)


def _end_run(run_id: str, *, now: datetime) -> bool:
    with transaction.atomic():
        run = lock_run(run_id)
        if run.status not in _STOPPABLE:
            return False
        request_stop(run, EndReason.PREEMPTED, "a run needs its slot", now=now)
    return True


def _preemptible_job(job: Job) -> Holder:
    return Holder(
        id=job.pk, team=job.attempt.run.project.team_id, node=job.attempt.node_id, slots=tuple(job.slots),
        leaving=job.stop_asked_at is not None,
    )  # fmt: skip


def _preemptible_runs(pool: str) -> list[Holder]:
    attempts = (
        Attempt.objects.filter(run__kind__in=PREEMPTIBLE_KINDS, run__slots_needed__gt=0, node__pool=pool)
        .exclude(status=AttemptStatus.ENDED)
        .select_related("run__project")
    )
    slots = leased_slots([attempt.pk for attempt in attempts])
    return [
        Holder(
            id=attempt.run_id, team=attempt.run.project.team_id, node=attempt.node_id, slots=slots[attempt.pk],
            leaving=attempt.run.status not in _STOPPABLE,
        )
        for attempt in attempts
    ]  # fmt: skip
