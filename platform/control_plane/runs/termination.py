"""Ends runs and attempts. The caller names a cause; the table lifecycle.OUTCOMES gives the final status."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from control_plane.fleet import services as fleet
from control_plane.fleet.models import Node
from control_plane.runs.attempt_status import retry_follows
from control_plane.runs.events import publish_run, record_event, transition_run
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.selectors import live_attempt, nodes_of, resumable_checkpoint
from oolong.contracts.lifecycle import OUTCOMES, AttemptStatus, EndReason, Fault, JobKind, JobState, RunStatus

CANCEL_GRACE_SECONDS = 5.0
NEEDS_ATTENTION = "NEEDS_ATTENTION"  # a condition: the run is paused because of an error


def request_stop(run: Run, reason: EndReason, message: str, *, now: datetime) -> None:
    """STOPPING: the trainer saves a checkpoint and exits, then the other jobs (see `_reconcile_stopping`)."""
    transition_run(run, RunStatus.STOPPING, now=now, message=message, **termination_fields(reason, message))
    attempt = live_attempt(run)
    if attempt is None:
        transition_run(run, RunStatus.STOPPED, now=now)
        return
    _stop_trainer_first(attempt, now=now)


def request_cancel(run: Run, message: str, *, now: datetime) -> None:
    """STOPPING without a last checkpoint: all jobs stop now, and are killed after a short grace period."""
    fields = termination_fields(EndReason.CANCELLED_BY_USER, message)
    attempt = live_attempt(run)
    if run.status == RunStatus.STOPPING:  # it was stopping with a checkpoint
        Run.objects.filter(pk=run.pk).update(**fields)
        for name, value in fields.items():
            setattr(run, name, value)
        record_event(run, "cancel", message, at=now)
        publish_run(run)
    else:
        transition_run(run, RunStatus.STOPPING, now=now, message=message, **fields)
    if attempt is None:
        transition_run(run, RunStatus.STOPPED, now=now)
        return
    _shorten_job_grace(attempt)
    stop_jobs(attempt, now=now)
    fleet.notify_nodes(nodes_of(attempt))


def shorten_grace(run: Run, message: str, *, now: datetime) -> bool:
    """Stop the jobs of a run that ends or leaves its node after a short grace period; its end reason stays. False when
    nothing changes."""
    attempt = live_attempt(run)
    if attempt is None or not _shorten_job_grace(attempt):
        return False
    stop_jobs(attempt, now=now)
    fleet.notify_nodes(nodes_of(attempt))
    record_event(run, "cancel", message, at=now)
    publish_run(run)
    return True


def _shorten_job_grace(attempt: Attempt) -> int:
    """Returns how many jobs have a shorter grace period than before."""
    running = attempt.jobs.exclude(state=JobState.EXITED).filter(grace_seconds__gt=CANCEL_GRACE_SECONDS)
    return running.update(grace_seconds=CANCEL_GRACE_SECONDS)


def force_terminate(run: Run, message: str, *, now: datetime) -> None:
    """STOPPED now. The attempt is fenced and no longer desired, so its node ends the jobs with its next heartbeat. The
    slots stay leased until the node reports that, or is lost."""
    attempt = live_attempt(run)
    if attempt is not None:
        leased: Counter[str] = Counter()  # by node
        for job in attempt.jobs.exclude(state=JobState.EXITED).select_related("node"):
            leased[job.placed_on.name] += len(job.slots)
        finalize_attempt(attempt, EndReason.FORCED_BY_OPERATOR, message, now=now)
        for node, slots in sorted(leased.items()):
            message += f"; {slots} slots stay leased until {node} has ended its jobs"
    fields = termination_fields(EndReason.FORCED_BY_OPERATOR, message)
    transition_run(run, RunStatus.STOPPED, now=now, message=message, **fields)
    fleet.publish_lease_change()


def request_pause(
    run: Run,
    reason: EndReason = EndReason.PAUSED_BY_USER,
    message: str = "pause was requested",
    *,
    now: datetime,
) -> None:
    """PAUSING: like a stop, but the run later resumes from the checkpoint that the trainer saves now."""
    transition_run(run, RunStatus.PAUSING, now=now, message=message, **termination_fields(reason, message))
    attempt = live_attempt(run)
    if attempt is None:
        mark_paused(run, now=now)
        return
    _stop_trainer_first(attempt, now=now)


def mark_paused(run: Run, *, now: datetime, conditions: list[str] | None = None) -> None:
    """PAUSED: no attempt, no slots, no position in the queue."""
    checkpoint = resumable_checkpoint(run)
    resumption = (
        f"resumes from step {checkpoint.step}" if checkpoint else "restarts from the beginning: no checkpoint"
    )
    reason = EndReason(run.reason or EndReason.PAUSED_BY_USER)
    why = "paused" if reason is EndReason.PAUSED_BY_USER else run.reason_message
    attention = [NEEDS_ATTENTION] if OUTCOMES[reason].fault is not Fault.NONE else []
    transition_run(
        run, RunStatus.PAUSED, now=now, message=f"paused; {resumption}", conditions=[*(conditions or []), *attention],
        pending_reason="", queue_position=None, promised_start_at=None, progress=None,
        **termination_fields(reason, f"{why}; {resumption} when you resume it"),
    )  # fmt: skip


def fail_attempt(run: Run, attempt: Attempt, cause: EndReason, message: str, *, now: datetime) -> None:
    """End the attempt for this cause. Whether the run recovers or ends is in lifecycle.OUTCOMES."""
    outcome = OUTCOMES[cause]
    lost_before = list(
        run.attempts.filter(status=AttemptStatus.ENDED).exclude(reason="").values_list("reason", flat=True)
    )
    attempt.status, attempt.reason, attempt.message = AttemptStatus.ENDING, cause, message[:4000]
    attempt.ending_at = now
    attempt.save(update_fields=["status", "reason", "message", "ending_at"])
    stop_jobs(attempt, now=now)
    record_event(
        run, "attempt_ended", f"attempt {attempt.number}: {message}", at=now, attempt_number=attempt.number,
        cause=cause, fault=outcome.fault,
    )  # fmt: skip
    max_attempts = int(run.spec["budget"]["max_attempts"])
    if retry_follows(cause, lost_before=lost_before, max_attempts=max_attempts):
        transition_run(
            run, RunStatus.RECOVERING, now=now, message=message, pending_reason=f"recovering: {message}"[:400]
        )
    elif run.status == RunStatus.FINALIZING:
        transition_run(run, outcome.status, now=now, message=message, **termination_fields(cause, message))
    else:
        transition_run(
            run, RunStatus.FINALIZING, now=now, message=message, **termination_fields(cause, message)
        )


def fail_attempt_of_lost_node(run: Run, attempt: Attempt, node: Node, *, now: datetime) -> None:
    """End the attempt because its node, or another one of its trainer, is LOST: unreachable, or revoked. The loss of a
    run that was leaving the node counts toward no limit of attempts."""
    revoked = node.is_revoked
    cause = EndReason.NODE_REVOKED if revoked else EndReason.NODE_LOST
    if attempt.reason == EndReason.PREEMPTED:
        cause = EndReason.PREEMPTED
    message = f"{node.name} {'was revoked' if revoked else 'is lost'}"
    fail_attempt(run, attempt, cause, message, now=now)


def request_preemption(run: Run, attempt: Attempt, message: str, *, now: datetime) -> None:
    """The trainer saves a checkpoint within its grace period and exits, or is killed; then the run returns to the
    queue. An attempt without a trainer ends now."""
    if not attempt.jobs.filter(kind=JobKind.TRAINER).exists():
        fail_attempt(run, attempt, EndReason.PREEMPTED, message, now=now)
        return
    attempt.reason, attempt.message = EndReason.PREEMPTED, message
    attempt.save(update_fields=["reason", "message"])
    _stop_trainer_first(attempt, now=now)
    record_event(
        run, "preempted", f"{message}: the run saves a checkpoint, then waits in the queue", at=now,
        attempt_number=attempt.number,
    )  # fmt: skip
    publish_run(run)


def finalize_attempt(attempt: Attempt, cause: EndReason, message: str, *, now: datetime) -> None:
    """ENDED: the attempt's epoch is fenced. Slots of jobs that are not known to be dead stay leased."""
    attempt.status, attempt.ended_at, attempt.private_key = AttemptStatus.ENDED, now, ""
    attempt.reason, attempt.message = attempt.reason or cause, attempt.message or message
    attempt.save(update_fields=["status", "ended_at", "private_key", "reason", "message"])
    fleet.notify_nodes(nodes_of(attempt))


def stop_engine(run: Run, job: Job, why: str, *, now: datetime) -> bool:
    """Stop an engine that joined later, while the run, which the caller has locked, continues: it releases its groups
    with their tokens. False when it is stopping already."""
    staying = Job.objects.filter(pk=job.pk, leaving_at=None, stop_asked_at=None)
    if not staying.exclude(state=JobState.EXITED).update(leaving_at=now, stop_asked_at=now):
        return False
    fleet.notify_nodes([job.placed_on.pk])
    record_event(run, "engines", f"{job.name} stops: {why}", at=now)
    publish_run(run)
    return True


def stop_jobs(attempt: Attempt, *, now: datetime, only_rank0: bool = False) -> None:
    """`only_rank0`: the trainer's job with rank 0, which the ranks on other nodes follow."""
    jobs = attempt.jobs.filter(stop_asked_at=None).exclude(state=JobState.EXITED)
    if only_rank0:
        jobs = jobs.filter(kind=JobKind.TRAINER, node=None)
    if jobs.update(stop_asked_at=now):
        fleet.notify_nodes(nodes_of(attempt))


def _stop_trainer_first(attempt: Attempt, *, now: datetime) -> None:
    """Stop the trainer, which saves a checkpoint; the other jobs follow. Without a trainer, stop all jobs."""
    trains = attempt.jobs.filter(kind=JobKind.TRAINER).exists()
    stop_jobs(attempt, only_rank0=trains, now=now)


def termination_fields(cause: EndReason, message: str) -> dict[str, Any]:
    return {
        "reason": cause,
        "reason_message": message or OUTCOMES[cause].advice,
        "fault": OUTCOMES[cause].fault,
    }
