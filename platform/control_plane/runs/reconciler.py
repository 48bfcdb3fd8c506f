"""The reconciler: derives a run's next status from its jobs. One function per status with jobs."""

from __future__ import annotations

from datetime import datetime, timedelta

from control_plane.checkpoints.models import Checkpoint, CheckpointKind, CheckpointState
from control_plane.checkpoints.serializers import CheckpointSerializer
from control_plane.core.stream import event_stream
from control_plane.fleet import services as fleet
from control_plane.fleet.models import Liveness
from control_plane.runs.attempt_status import WORKING, Done, Failed, JobSnapshot, Working, derive, retry_delay
from control_plane.runs.drain import (
    draining_since,
    final_is_stored,
    incomplete_jobs,
    is_drained,
    results_are_stored,
)
from control_plane.runs.events import publish_run, record_event, run_summary, transition_run
from control_plane.runs.locking import for_each_locked
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.selectors import live_attempt, newest_stored_checkpoint
from control_plane.runs.termination import (
    fail_attempt,
    fail_attempt_of_lost_node,
    finalize_attempt,
    mark_paused,
    request_pause,
    request_stop,
    stop_jobs,
    termination_fields,
)
from control_plane.runs.trainer_gang import is_ended_by_provider, lost_node, node_behind_crash
from control_plane.webhooks import outbox
from oolong.contracts.lifecycle import (
    ENDED,
    OUTCOMES,
    AttemptStatus,
    EndReason,
    JobKind,
    JobState,
    Retry,
    RunStatus,
)

# After these ends a run starts over when none of its checkpoints was stored: neither it nor its node is to blame.
_MAY_START_OVER = frozenset(reason for reason, outcome in OUTCOMES.items() if outcome.retry is Retry.ALWAYS)
RESULT_SUMMARIES = {
    "eval": "evaluation",
    "reward_test": "reward_test",
}  # kinds without a checkpoint → the summary that is their result
TRAINER_EXIT_GRACE = timedelta(
    seconds=20
)  # after a stopped trainer exits, the other jobs exit within this time


def reconcile_runs(*, now: datetime) -> None:
    """Reconcile every run whose status may change. Runs that are locked wait for the next tick."""
    for_each_locked(runs_to_reconcile(now), lambda run: reconcile_run(run, now=now))


def runs_to_reconcile(now: datetime) -> list[str]:
    """IDs of runs whose status may change. Takes three queries, however many runs are steady."""
    attempts = {
        attempt.run_id: attempt
        for attempt in Attempt.objects.exclude(status=AttemptStatus.ENDED)
        .select_related("node")
        .prefetch_related("jobs")
    }
    unended = Run.objects.exclude(
        status__in=[*ENDED, RunStatus.DRAFT, RunStatus.QUEUED, RunStatus.PAUSED]
    ).order_by("pk")
    return [run.pk for run in unended if not _is_steady(run, attempts.get(run.pk), now=now)]


def record_stored_checkpoint(run: Run, checkpoint: Checkpoint, *, now: datetime) -> None:
    """A checkpoint was stored: publish it and reconcile the run, which the caller has locked."""
    message = f"checkpoint of step {checkpoint.step} stored"
    record_event(run, "checkpoint_stored", message, at=now, attempt_number=checkpoint.attempt_number)
    event_stream.publish(f"run:{run.pk}", "checkpoint", CheckpointSerializer.render(checkpoint))
    stored = {
        "id": checkpoint.pk,
        "step": checkpoint.step,
        "final": checkpoint.final,
        "bytes": checkpoint.bytes,
    }
    outbox.emit(run.project_id, "checkpoint.stored", {"run": run_summary(run), "checkpoint": stored}, now=now)
    publish_run(run)
    reconcile_run(run, now=now)


def reconcile_run(run: Run, *, now: datetime) -> None:
    if run.has_ended or run.status in (RunStatus.DRAFT, RunStatus.QUEUED, RunStatus.PAUSED):
        return
    attempt = live_attempt(run)
    if attempt is None:
        if run.status == RunStatus.RECOVERING:
            _requeue(run, now=now)
        elif run.status == RunStatus.PAUSING:
            mark_paused(run, now=now)
        elif run.status == RunStatus.STOPPING:
            transition_run(run, RunStatus.STOPPED, now=now)
        elif run.status == RunStatus.FINALIZING:
            _finish(run, None, [], now=now)
        return
    jobs = list(attempt.jobs.select_related("node").order_by("pk"))
    match RunStatus(run.status):
        case RunStatus.STARTING | RunStatus.RUNNING:
            _reconcile_working(run, attempt, jobs, now=now)
        case RunStatus.PAUSING | RunStatus.STOPPING:
            _reconcile_stopping(run, attempt, jobs, now=now)
        case RunStatus.FINALIZING:
            _reconcile_finalizing(run, attempt, jobs, now=now)
        case RunStatus.RECOVERING:
            _reconcile_recovering(run, attempt, jobs, now=now)


def _reconcile_working(run: Run, attempt: Attempt, jobs: list[Job], *, now: datetime) -> None:
    status = derive(run.kind, [_job_snapshot(job) for job in jobs])
    if isinstance(status, Failed) and attempt.reason == EndReason.PREEMPTED:
        fail_attempt(run, attempt, EndReason.PREEMPTED, attempt.message, now=now)
    elif isinstance(status, Failed) and is_ended_by_provider(attempt):
        fail_attempt(run, attempt, EndReason.PREEMPTED, f"its node ends: {status.message}", now=now)
    elif isinstance(status, Failed) and OUTCOMES[status.cause].status is RunStatus.PAUSED:
        request_pause(run, status.cause, status.message, now=now)
    elif isinstance(status, Failed) and (silent := node_behind_crash(attempt, status, jobs, now=now)):
        if silent.liveness != Liveness.READY:
            fail_attempt_of_lost_node(run, attempt, silent, now=now)
    elif isinstance(status, Failed):
        fail_attempt(run, attempt, status.cause, status.message, now=now)
    elif isinstance(status, Done):
        if attempt.reason:  # it completed before its preemption
            Attempt.objects.filter(pk=attempt.pk).update(reason="", message="")
        transition_run(
            run,
            RunStatus.FINALIZING,
            now=now,
            message="the work is done; waiting for the last telemetry and checkpoint",
        )
        stop_jobs(attempt, now=now)
    elif (lost := lost_node(attempt)) is not None:
        fail_attempt_of_lost_node(run, attempt, lost, now=now)
    elif _wall_time_exceeded(run, now=now):
        request_stop(
            run, EndReason.WALL_TIME_EXCEEDED,
            f"budget.max_wall_seconds={run.spec['budget']['max_wall_seconds']} is exceeded", now=now,
        )  # fmt: skip
    elif status.all_running and run.status == RunStatus.STARTING:
        Attempt.objects.filter(pk=attempt.pk).update(status=AttemptStatus.RUNNING, running_at=now)
        transition_run(
            run, RunStatus.RUNNING, now=now, message=f"every job of attempt {attempt.number} is running"
        )


def _reconcile_stopping(run: Run, attempt: Attempt, jobs: list[Job], *, now: datetime) -> None:
    """A run that stops or pauses: first the trainer saves a checkpoint, then the other jobs stop."""
    if run.status == RunStatus.PAUSING and isinstance(
        derive(run.kind, [_job_snapshot(job) for job in jobs]), Done
    ):
        transition_run(
            run, RunStatus.FINALIZING, now=now, message="the work completed before the run could be paused", reason="",
            reason_message="", fault="",
        )  # fmt: skip
        stop_jobs(attempt, now=now)
        return
    trainer = next((job for job in jobs if job.kind == JobKind.TRAINER and not job.is_follower), None)
    if trainer is not None and trainer.state == JobState.EXITED:
        # A trainer that exits with an error (torchrun exits with 1 after a signal) may not have notified its
        # controller, so the other jobs would not stop by themselves.
        others_follow = trainer.exit_code == 0 and now - (trainer.ended_at or now) < TRAINER_EXIT_GRACE
        if not others_follow:
            stop_jobs(attempt, now=now)
    unreachable = attempt.node.liveness != Liveness.READY
    if unreachable or is_drained(attempt, jobs, since=draining_since(jobs, run), now=now):
        gap = incomplete_jobs(jobs)
        if run.status == RunStatus.PAUSING:
            finalize_attempt(attempt, EndReason(run.reason), "the run was paused", now=now)
            mark_paused(run, conditions=["GAP"] if gap else [], now=now)
            fleet.publish_lease_change()
            return
        end = "with a checkpoint" if newest_stored_checkpoint(run) else "without a checkpoint"
        finalize_attempt(attempt, EndReason(run.reason), run.reason_message, now=now)
        transition_run(
            run, RunStatus.STOPPED, now=now, message=f"stopped {end}", conditions=["GAP"] if gap else []
        )
        fleet.publish_lease_change()


def _reconcile_finalizing(run: Run, attempt: Attempt, jobs: list[Job], *, now: datetime) -> None:
    if attempt.node.liveness == Liveness.LOST and not run.reason and not results_are_stored(attempt, jobs):
        fail_attempt_of_lost_node(run, attempt, attempt.node, now=now)
        return
    unreachable = attempt.node.liveness != Liveness.READY
    if is_drained(attempt, jobs, since=draining_since(jobs, run), now=now) or (unreachable and run.reason):
        _finish(run, attempt, jobs, now=now)


def _finish(run: Run, attempt: Attempt | None, jobs: list[Job], *, now: datetime) -> None:
    """End a FINALIZING run with the recorded reason, or COMPLETED."""
    gap = incomplete_jobs(jobs)
    trains = any(job.kind == JobKind.TRAINER for job in jobs)
    if not run.reason and trains and attempt is not None and not final_is_stored(attempt):
        message = "the trainer completed, but its final checkpoint was not stored"
        fields = termination_fields(EndReason.NO_VALID_CHECKPOINT, message)
        run.reason = fields["reason"]
    elif not run.reason and RESULT_SUMMARIES.get(run.kind, "") not in {"", *run.summary}:
        fields = termination_fields(EndReason.NODE_LOST, "the node did not ship the scores")
    elif not run.reason:
        fields = termination_fields(EndReason.COMPLETED, "")
    else:
        fields = {}
    reason = EndReason(fields.get("reason") or run.reason)
    if attempt is not None:
        finalize_attempt(attempt, reason, run.reason_message, now=now)
    advice = OUTCOMES[reason].advice or (
        "completed; the last checkpoint is stored" if trains else "completed"
    )
    message = f"the last telemetry of {', '.join(gap)} did not arrive" if gap else advice
    transition_run(
        run, OUTCOMES[reason].status, now=now, message=message, conditions=["GAP"] if gap else [], **fields
    )
    fleet.publish_lease_change()


def _reconcile_recovering(run: Run, attempt: Attempt, jobs: list[Job], *, now: datetime) -> None:
    """Requeue once the old attempt's jobs have exited and its newest checkpoint is stored, or its node is
    unreachable."""
    unreachable = attempt.node.liveness != Liveness.READY
    if unreachable or is_drained(attempt, jobs, since=attempt.ending_at or now, now=now):
        finalize_attempt(attempt, EndReason(attempt.reason), attempt.message, now=now)
        _requeue(run, now=now)
        fleet.publish_lease_change()


def _requeue(run: Run, *, now: datetime) -> None:
    """Queue the run for a new attempt. It fails when the last attempt committed checkpoints and none was stored, unless
    it was preempted or its node was revoked: then the run starts over."""
    last = run.attempts.order_by("-number").first()
    states = Checkpoint.objects.filter(kind=CheckpointKind.TRAINING)
    committed = (
        last is not None
        and not (last.reason in _MAY_START_OVER or last.node.is_revoked)
        and states.filter(attempt_id=last.pk).exists()
    )
    if committed and not states.filter(run_id=run.pk, state=CheckpointState.STORED).exists():
        message = "checkpoints were committed, but none was stored"
        transition_run(
            run, RunStatus.FAILED, now=now, message=message,
            **termination_fields(EndReason.NO_VALID_CHECKPOINT, message),
        )  # fmt: skip
        return
    transition_run(
        run, RunStatus.QUEUED, now=now, message="waiting for slots for a new attempt",
        not_before=now + timedelta(seconds=_seconds_to_wait(run, last)), pending_reason="",
    )  # fmt: skip


def _seconds_to_wait(run: Run, last: Attempt | None) -> float:
    """More with each attempt that failed; none after a pause, a preemption or a drain, which say nothing about the
    next attempt."""
    harmless = {reason for reason, outcome in OUTCOMES.items() if outcome.status is RunStatus.PAUSED}
    harmless |= _MAY_START_OVER
    if last is None or last.reason in harmless:
        return 0.0
    return retry_delay(run.attempts.exclude(reason__in=harmless).count())


def _is_steady(run: Run, attempt: Attempt | None, *, now: datetime) -> bool:
    if attempt is None or run.status not in WORKING or lost_node(attempt) is not None:
        return False
    status = derive(run.kind, [_job_snapshot(job) for job in attempt.jobs.all()])
    ready = isinstance(status, Working) and not (status.all_running and run.status == RunStatus.STARTING)
    return ready and not _wall_time_exceeded(run, now=now)


def _wall_time_exceeded(run: Run, *, now: datetime) -> bool:
    bound = run.spec["budget"]["max_wall_seconds"]
    if bound is None or run.started_at is None:
        return False
    return now - run.started_at - timedelta(seconds=run.paused_seconds) > timedelta(seconds=bound)


def _job_snapshot(job: Job) -> JobSnapshot:
    return JobSnapshot(
        name=job.name, kind=JobKind(job.kind), state=job.state, reason=job.reason, message=job.message,
        exit_code=job.exit_code, leaving=job.leaving_at is not None or job.is_remote,
    )  # fmt: skip
