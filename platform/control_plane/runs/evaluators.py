"""Evaluators: rollout jobs that evaluate on idle slots of the run's node, next to the engines of the run.

The controller names the evaluation in its pipeline state (`evaluator_wanted`) for as long as it wants an evaluator. An
evaluator generates nothing for training: its exit does not affect the run, it does not count as an engine, and it stops
when its evaluation is over or when a queued run needs its slot.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet

from control_plane.fleet import services as fleet
from control_plane.fleet.access import team_may_use
from control_plane.fleet.models import Node
from control_plane.fleet.snapshot import Loan, LoanRequest
from control_plane.runs.events import publish_run, record_event
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.plan_jobs import GRACE_SECONDS
from control_plane.runs.selectors import held_ports, next_rollout_index
from control_plane.runs.slot_requests import request_of, sort_runs
from oolong.contracts.lifecycle import AttemptStatus, JobKind, JobState, RunStatus
from oolong.contracts.rollout import version_of_task

MAX_PER_EVALUATION = 3  # evaluators per evaluation, since some may be preempted or crash


def any_evaluator_wanted_or_active() -> bool:
    """Whether an evaluator is wanted, or an active one may have to stop."""
    return _attempts_wanting_evaluator().exists() or active_evaluators().exists()


def evaluator_requests(pool: str) -> list[LoanRequest]:
    """Due evaluations of the pool, one per run, in the order of the queue."""
    due = (
        _attempts_wanting_evaluator()
        .filter(node__pool=pool)
        .select_related("run__project", "run__base_model", "run__initial_checkpoint__base_model")
    )
    of_run = {attempt.run_id: attempt for attempt in due}
    return [
        LoanRequest(of_run[run.pk].pk, "evaluator", request_of(run), (of_run[run.pk].node_id,), 1)
        for run in sort_runs(attempt.run for attempt in of_run.values())
    ]


def join_evaluator(loan: Loan, *, now: datetime) -> bool:
    """Add an evaluator job with its lease and port. False when the run or node has changed. Raises IntegrityError when
    the slot was leased concurrently."""
    ((node_id, slot),) = loan.slots
    with transaction.atomic():
        run = lock_run(Attempt.objects.values_list("run_id", flat=True).get(pk=loan.request.attempt))
        attempt = _attempts_wanting_evaluator().filter(pk=loan.request.attempt).first()
        node = Node.objects.select_for_update().get(pk=node_id)
        if attempt is None or not node.takes_work or not team_may_use(node.pool_id, run.project.team_id):
            return False
        task = attempt.evaluator_wanted
        if attempt.jobs.filter(evaluates=task).count() >= MAX_PER_EVALUATION:
            return False
        job = _create_job(run, attempt, node, slot, task, now=now)
        message = f"{job.name} joins on {slot} of {node.name} to evaluate version {version_of_task(task)}"
        record_event(run, "evaluator", f"{message}, beside the run's engines", at=now, slots=[slot])
        publish_run(run)
        fleet.publish_lease_change()
    return True


def release_finished(*, now: datetime) -> int:
    """Stop evaluators whose evaluation is over or is run by another one. The controller tells them as well."""
    finished = (
        active_evaluators().filter(stop_asked_at=None).exclude(evaluates=F("attempt__evaluator_wanted"))
    )
    return sum(request_release(job, "its evaluation is over", now=now) for job in finished)


def request_release(job: Job, why: str, *, now: datetime) -> bool:
    """Stop an evaluator. False when it is stopping already or has exited."""
    with transaction.atomic():
        run = lock_run(job.attempt.run_id)
        requested = active_evaluators().filter(pk=job.pk, stop_asked_at=None).update(stop_asked_at=now)
        if requested:
            fleet.notify_nodes([job.attempt.node_id])
            record_event(
                run, "evaluator", f"{job.name} stops: {why}", at=now, attempt_number=job.attempt.number
            )
    return bool(requested)


def active_evaluators() -> QuerySet[Job]:
    return (
        Job.objects.filter(evaluates__gt="")
        .exclude(state=JobState.EXITED)
        .exclude(attempt__status=AttemptStatus.ENDED)
        .select_related("attempt__run__project")
    )


def _attempts_wanting_evaluator() -> QuerySet[Attempt]:
    there = Job.objects.filter(attempt=OuterRef("pk"), evaluates__gt="").exclude(state=JobState.EXITED)
    return Attempt.objects.filter(
        ~Exists(there), run__status=RunStatus.RUNNING, status=AttemptStatus.RUNNING, evaluator_wanted__gt="",
    )  # fmt: skip


def _create_job(run: Run, attempt: Attempt, node: Node, slot: str, task: str, *, now: datetime) -> Job:
    index = next_rollout_index(attempt)
    (port,) = fleet.allocate_ports(node, 1, held=held_ports(node))
    job = Job.objects.create(
        attempt=attempt, name=f"evaluator-{index}", kind=JobKind.ROLLOUT, index=index, slots=[slot],
        restarts=0, grace_seconds=GRACE_SECONDS, engine_port=port, evaluates=task,
        leaving_at=now,  # its exit never affects the run
    )  # fmt: skip
    fleet.grant_leases(
        node=node, project=run.project, holder=attempt.pk, epoch=attempt.epoch, run=run.pk, run_name=run.name,
        grants=[fleet.Grant(slot, job.pk, f"{job.name} evaluates v{version_of_task(task)}")], now=now,
    )  # fmt: skip
    fleet.notify_nodes([node.pk])
    return job
