"""Evaluations get a slot that the queue leaves idle on their run's node, beside the engines of the run.

The controller names in its pipeline document what it would like one for (`evaluator_wanted`), for as long as it would.
An evaluator is a rollout job that generates nothing for the run: its end means nothing to the run, it is none of the
engines that are counted or removed, and it goes when its evaluation is over or when a run of the queue needs its slot.
"""

from __future__ import annotations

import logging
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, QuerySet

from control_plane.fleet import services as fleet
from control_plane.fleet.access import team_may_use
from control_plane.fleet.idle_slots import Leftover
from control_plane.fleet.models import Node
from control_plane.runs.events import announce_run, note
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.plan_jobs import GRACE_SECONDS
from control_plane.runs.selectors import held_ports, next_rollout_index
from control_plane.runs.slot_requests import in_order, request_of
from oolong.contracts.agent import EVALUATORS
from oolong.contracts.lifecycle import AttemptStatus, JobKind, JobState, RunStatus
from oolong.contracts.rollout import version_of_task

log = logging.getLogger(__name__)
AT_MOST = 3  # evaluators of one evaluation: some may have to go, or die


def wants_evaluators() -> bool:
    """Whether one is wanted, or one is there that may have to go."""
    return _wanting().exists() or evaluators_there().exists()


def add_evaluators(left: Leftover, *, pool: str, spared: frozenset[str], now: datetime) -> int:
    """Lease slots of the pool that nobody else wants to evaluations that are due, one to each run; none to the teams
    `spared`."""
    added = 0
    due = _wanting().filter(node__pool=pool).select_related("run__project", "run__base_model")
    of_run = {attempt.run_id: attempt for attempt in due}
    for run in in_order(attempt.run for attempt in of_run.values()):
        attempt, team = of_run[run.pk], run.project.team_id
        slots = left.slots(attempt.node_id, request_of(run), 1) if team not in spared else ()
        if not slots:
            continue
        try:
            with transaction.atomic():
                joined = _join(attempt, slots[0], now=now)
        except IntegrityError:
            # Somebody else leased the slot meanwhile; the next tick looks anew.
            log.warning("no evaluator could join run %s", attempt.run_id, exc_info=True)
            continue
        if joined:
            left.take(attempt.node_id, team, slots)
            added += 1
    return added


def send_home(*, now: datetime) -> int:
    """Ask evaluators to leave whose evaluation is over or somebody else's. They hear it from the controller too."""
    idle = evaluators_there().filter(stop_asked_at=None).exclude(evaluates=F("attempt__evaluator_wanted"))
    return sum(ask_to_leave(job, "its evaluation is over", now=now) for job in idle)


def ask_to_leave(job: Job, why: str, *, now: datetime) -> bool:
    """False when it was asked before, or is gone."""
    with transaction.atomic():
        run = lock_run(job.attempt.run_id)
        asked = evaluators_there().filter(pk=job.pk, stop_asked_at=None).update(stop_asked_at=now)
        if asked:
            fleet.ring([job.attempt.node_id])
            note(run, "evaluator", f"{job.name} leaves: {why}", at=now, attempt_number=job.attempt.number)
    return bool(asked)


def evaluators_there() -> QuerySet[Job]:
    return (
        Job.objects.filter(evaluates__gt="")
        .exclude(state=JobState.EXITED)
        .exclude(attempt__status=AttemptStatus.ENDED)
        .select_related("attempt__run__project")
    )


def _wanting() -> QuerySet[Attempt]:
    there = Job.objects.filter(attempt=OuterRef("pk"), evaluates__gt="").exclude(state=JobState.EXITED)
    return Attempt.objects.filter(
        ~Exists(there), run__status=RunStatus.RUNNING, status=AttemptStatus.RUNNING, evaluator_wanted__gt="",
        node__protocol__gte=EVALUATORS,
    )  # fmt: skip


def _join(seen: Attempt, slot: str, *, now: datetime) -> bool:
    """A new job with its lease and port; False when things are no longer as they were seen."""
    run = lock_run(seen.run_id)
    attempt = _wanting().filter(pk=seen.pk).first()
    node = Node.objects.select_for_update().get(pk=seen.node_id)
    if attempt is None or not node.takes_work or not team_may_use(node.pool_id, run.project.team_id):
        return False
    task = attempt.evaluator_wanted
    if attempt.jobs.filter(evaluates=task).count() >= AT_MOST:
        return False
    job = _make_job(run, attempt, node, slot, task, now=now)
    message = f"{job.name} joins on {slot} of {node.name} to evaluate version {version_of_task(task)}"
    note(run, "evaluator", f"{message}, beside the run's engines", at=now, slots=[slot])
    announce_run(run)
    fleet.announce_leases()
    return True


def _make_job(run: Run, attempt: Attempt, node: Node, slot: str, task: str, *, now: datetime) -> Job:
    index = next_rollout_index(attempt)
    (port,) = fleet.allocate_ports(node, 1, held=held_ports(node))
    job = Job.objects.create(
        attempt=attempt, name=f"evaluator-{index}", kind=JobKind.ROLLOUT, index=index, slots=[slot],
        restarts=0, grace_seconds=GRACE_SECONDS, engine_port=port, evaluates=task,
        leaving_at=now,  # its end means nothing to the run, from the first moment on
    )  # fmt: skip
    fleet.grant_leases(
        node=node, team=run.project.team, holder=attempt.pk, epoch=attempt.epoch, run=run.pk, run_name=run.name,
        grants=[fleet.Grant(slot, job.pk, f"{job.name} evaluates v{version_of_task(task)}")], now=now,
    )  # fmt: skip
    fleet.ring([node.pk])
    return job
