"""The holders of slots that the scheduler may preempt for a queued run, and how each of them is stopped."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Max

from control_plane.checkpoints.models import Checkpoint, CheckpointKind, CheckpointState
from control_plane.fleet.models import Lease, Quota
from control_plane.fleet.snapshot import Holder, HolderKind, Preemption
from control_plane.runs.elastic_engines import joined_engines, reclaim_engine
from control_plane.runs.evaluators import active_evaluators, request_release
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Attempt, Job
from control_plane.runs.selectors import live_attempt
from control_plane.runs.slot_requests import PREEMPTIBLE_KINDS
from control_plane.runs.termination import request_preemption, request_stop
from oolong.contracts.lifecycle import AttemptStatus, EndReason, RunStatus

_STOPPABLE = (RunStatus.STARTING, RunStatus.RUNNING)


def slot_holders(pool: str, *, now: datetime, reserved: bool = False) -> list[Holder]:
    """Engines and evaluators that joined later, playgrounds and reward tests, and, in a pool with nominal quotas or
    reservations, all other runs."""
    jobs = [*active_evaluators().filter(attempt__node__pool=pool), *joined_engines(pool)]
    attempts = (
        Attempt.objects.filter(run__slots_needed__gt=0, node__pool=pool)
        .exclude(status=AttemptStatus.ENDED)
        .select_related("run__project")
    )
    # A project's nominal quota is part of its team's.
    if not reserved and not Quota.objects.filter(pool=pool, nominal_slots__gt=0).exists():
        attempts = attempts.filter(run__kind__in=PREEMPTIBLE_KINDS)
    return [*_runs(list(attempts), joined={job.pk for job in jobs}, now=now), *(_joined(job) for job in jobs)]


def preempt(preemption: Preemption, *, now: datetime) -> bool:
    """Stop the holder. False when it is stopping already or has ended."""
    if preemption.kind == HolderKind.ENGINE:
        job = Job.objects.select_related("attempt").get(pk=preemption.holder)
        if job.evaluates:
            return request_release(job, "a run needs its slot", now=now)
        return reclaim_engine(job, now=now)
    with transaction.atomic():
        run = lock_run(preemption.holder)
        attempt = live_attempt(run)
        if run.status not in _STOPPABLE or attempt is None or attempt.reason:
            return False
        if preemption.kind == HolderKind.PLAYGROUND:
            request_stop(run, EndReason.PREEMPTED, "a run needs its slot", now=now)
        else:
            message = preemption.why or f"a run within its nominal quota needs its slots in pool {run.pool}"
            request_preemption(run, attempt, message, now=now)
    return True


def _joined(job: Job) -> Holder:
    return Holder(
        id=job.pk, team=job.attempt.run.project.team_id, node=job.placed_on.pk, slots=tuple(job.slots),
        leaving=job.stop_asked_at is not None, project=job.attempt.run.project_id,
    )  # fmt: skip


def _runs(attempts: list[Attempt], *, joined: set[str], now: datetime) -> list[Holder]:
    slots: dict[str, dict[str, list[str]]] = {attempt.pk: {attempt.node_id: []} for attempt in attempts}
    leases = Lease.objects.filter(holder__in=slots, released_at=None).exclude(job__in=joined)
    for holder, node, slot in leases.order_by("slot__name").values_list("holder", "slot__node", "slot__name"):
        slots[holder].setdefault(node, []).append(slot)
    saved = dict(
        Checkpoint.objects.filter(
            attempt_id__in=slots, kind=CheckpointKind.TRAINING, state=CheckpointState.STORED
        ).values_list("attempt_id").annotate(Max("stored_at"))
    )  # fmt: skip
    minimum = timedelta(seconds=settings.ENVIRONMENT.min_runtime_seconds)
    return [
        Holder(
            id=attempt.run_id, team=attempt.run.project.team_id, node=node, slots=tuple(names),
            leaving=attempt.run.status not in _STOPPABLE or bool(attempt.reason),
            kind=HolderKind.PLAYGROUND if attempt.run.kind in PREEMPTIBLE_KINDS else HolderKind.RUN,
            protected=now - attempt.created_at < minimum,
            project=attempt.run.project_id,
            lost_gpu_seconds=sum(map(len, slots[attempt.pk].values()))
            * (now - (saved.get(attempt.pk) or attempt.created_at)).total_seconds(),
        )
        for attempt in attempts
        for node, names in slots[attempt.pk].items()
    ]  # fmt: skip
