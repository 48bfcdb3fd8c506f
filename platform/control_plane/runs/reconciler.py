"""A run is brought as far as its jobs have come: one function for each status that has jobs."""

from __future__ import annotations

from datetime import datetime, timedelta

from control_plane.checkpoints.models import Checkpoint, CheckpointKind, CheckpointState
from control_plane.checkpoints.serializers import CheckpointSerializer
from control_plane.core.stream import event_stream
from control_plane.fleet import services as fleet
from control_plane.fleet.models import Liveness
from control_plane.runs.attempt_status import (
    WORKING,
    Broken,
    Done,
    JobView,
    Working,
    judge,
    pause_before_retry,
)
from control_plane.runs.drain import final_is_stored, gap_of, is_quiet, quiet_since, results_are_kept
from control_plane.runs.events import announce_run, move_run, note, run_in_brief
from control_plane.runs.locking import each_locked
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.selectors import live_attempt, newest_stored_checkpoint
from control_plane.runs.termination import (
    ask_stop,
    begin_pause,
    begin_stop,
    close_attempt,
    end_attempt,
    end_with_node,
    rest,
    verdict_of,
)
from control_plane.webhooks import outbox
from oolong.contracts.lifecycle import (
    ENDED,
    OUTCOMES,
    AttemptStatus,
    EndReason,
    JobKind,
    JobState,
    RunStatus,
)

RESULTS = {
    "eval": "evaluation",
    "reward_test": "reward_test",
}  # kinds without a checkpoint → the summary that they are for
FOLLOW_TRAINER = timedelta(seconds=20)  # within this after a stopped trainer the other jobs end by themselves


def advance_runs(*, now: datetime) -> None:
    """Bring every run as far as its jobs have come. Runs that somebody else works on are left for the next tick."""
    each_locked(runs_to_advance(now), lambda run: advance_run(run, now=now))


def runs_to_advance(now: datetime) -> list[str]:
    """Runs that a locked look may change. Three queries, however many runs go their quiet way."""
    attempts = {
        attempt.run_id: attempt
        for attempt in Attempt.objects.exclude(status=AttemptStatus.ENDED)
        .select_related("node")
        .prefetch_related("jobs")
    }
    unended = Run.objects.exclude(
        status__in=[*ENDED, RunStatus.DRAFT, RunStatus.QUEUED, RunStatus.PAUSED]
    ).order_by("pk")
    return [run.pk for run in unended if not _goes_its_way(run, attempts.get(run.pk), now=now)]


def note_stored(run: Run, checkpoint: Checkpoint, *, now: datetime) -> None:
    """A checkpoint reached the store: tell the run, which is locked."""
    message = f"checkpoint of step {checkpoint.step} stored"
    note(run, "checkpoint_stored", message, at=now, attempt_number=checkpoint.attempt_number)
    event_stream.publish(f"run:{run.pk}", "checkpoint", CheckpointSerializer.render(checkpoint))
    stored = {
        "id": checkpoint.pk,
        "step": checkpoint.step,
        "final": checkpoint.final,
        "bytes": checkpoint.bytes,
    }
    told = {"run": run_in_brief(run), "checkpoint": stored}
    outbox.emit(run.project_id, "checkpoint.stored", told, now=now)
    announce_run(run)
    advance_run(run, now=now)


def advance_run(run: Run, *, now: datetime) -> None:
    if run.has_ended or run.status in (RunStatus.DRAFT, RunStatus.QUEUED, RunStatus.PAUSED):
        return
    attempt = live_attempt(run)
    if attempt is None:
        if run.status == RunStatus.RECOVERING:
            _requeue(run, now=now)
        elif run.status == RunStatus.PAUSING:
            rest(run, now=now)
        elif run.status == RunStatus.STOPPING:
            move_run(run, RunStatus.STOPPED, now=now)
        elif run.status == RunStatus.FINALIZING:
            _finish(run, None, [], now=now)
        return
    jobs = list(attempt.jobs.order_by("pk"))
    match RunStatus(run.status):
        case RunStatus.STARTING | RunStatus.RUNNING:
            _advance_working(run, attempt, jobs, now=now)
        case RunStatus.PAUSING | RunStatus.STOPPING:
            _advance_stopping(run, attempt, jobs, now=now)
        case RunStatus.FINALIZING:
            _advance_finalizing(run, attempt, jobs, now=now)
        case RunStatus.RECOVERING:
            _advance_recovering(run, attempt, jobs, now=now)


def _advance_working(run: Run, attempt: Attempt, jobs: list[Job], *, now: datetime) -> None:
    verdict = judge(run.kind, [_view(job) for job in jobs])
    if isinstance(verdict, Broken) and OUTCOMES[verdict.cause].status is RunStatus.PAUSED:
        begin_pause(run, verdict.cause, verdict.message, now=now)
    elif isinstance(verdict, Broken):
        end_attempt(run, attempt, verdict.cause, verdict.message, now=now)
    elif isinstance(verdict, Done):
        move_run(
            run,
            RunStatus.FINALIZING,
            now=now,
            message="the work is done; the last lines and checkpoint follow",
        )
        ask_stop(attempt, now=now)
    elif attempt.node.liveness == Liveness.LOST:
        end_with_node(run, attempt, now=now)
    elif _wall_time_over(run, now=now):
        begin_stop(
            run, EndReason.WALL_TIME_EXCEEDED,
            f"budget.max_wall_seconds={run.spec['budget']['max_wall_seconds']} is over", now=now,
        )  # fmt: skip
    elif verdict.all_running and run.status == RunStatus.STARTING:
        Attempt.objects.filter(pk=attempt.pk).update(status=AttemptStatus.RUNNING, running_at=now)
        move_run(run, RunStatus.RUNNING, now=now, message=f"every job of attempt {attempt.number} runs")


def _advance_stopping(run: Run, attempt: Attempt, jobs: list[Job], *, now: datetime) -> None:
    """Of a run that stops or pauses: the trainer's checkpoint first, then the others' end."""
    if run.status == RunStatus.PAUSING and isinstance(judge(run.kind, [_view(job) for job in jobs]), Done):
        move_run(
            run, RunStatus.FINALIZING, now=now, message="the work was done before it could be paused", reason="",
            reason_message="", fault="",
        )  # fmt: skip
        ask_stop(attempt, now=now)
        return
    trainer = next((job for job in jobs if job.kind == JobKind.TRAINER), None)
    if trainer is not None and trainer.state == JobState.EXITED:
        # After a signal (torchrun then exits with 1) there may be nobody who follows: it may have died before it
        # told its controller. Whatever it had to say is said by now, so the others are asked as well.
        followed = trainer.exit_code == 0 and now - (trainer.ended_at or now) < FOLLOW_TRAINER
        if not followed:
            ask_stop(attempt, now=now)
    silent = attempt.node.liveness != Liveness.READY
    if silent or is_quiet(attempt, jobs, since=quiet_since(jobs, run), now=now):
        gap = gap_of(jobs)
        if run.status == RunStatus.PAUSING:
            close_attempt(attempt, EndReason(run.reason), "the run was paused", now=now)
            rest(run, conditions=["GAP"] if gap else [], now=now)
            fleet.announce_leases()
            return
        end = "with a checkpoint" if newest_stored_checkpoint(run) else "without a checkpoint"
        close_attempt(attempt, EndReason(run.reason), run.reason_message, now=now)
        move_run(run, RunStatus.STOPPED, now=now, message=f"stopped {end}", conditions=["GAP"] if gap else [])
        fleet.announce_leases()


def _advance_finalizing(run: Run, attempt: Attempt, jobs: list[Job], *, now: datetime) -> None:
    if attempt.node.liveness == Liveness.LOST and not run.reason and not results_are_kept(attempt, jobs):
        end_with_node(run, attempt, now=now)
        return
    silent = attempt.node.liveness != Liveness.READY
    if is_quiet(attempt, jobs, since=quiet_since(jobs, run), now=now) or (silent and run.reason):
        _finish(run, attempt, jobs, now=now)


def _finish(run: Run, attempt: Attempt | None, jobs: list[Job], *, now: datetime) -> None:
    """Out of FINALIZING: with the cause noted before, or COMPLETED."""
    gap = gap_of(jobs)
    trains = any(job.kind == JobKind.TRAINER for job in jobs)
    if not run.reason and trains and attempt is not None and not final_is_stored(attempt):
        message = "the trainer completed, but no committed checkpoint of it reached the store"
        fields = verdict_of(EndReason.NO_VALID_CHECKPOINT, message)
        run.reason = fields["reason"]
    elif not run.reason and RESULTS.get(run.kind, "") not in {"", *run.summary}:
        fields = verdict_of(EndReason.NODE_LOST, "the scores did not arrive from the node")
    elif not run.reason:
        fields = verdict_of(EndReason.COMPLETED, "")
    else:
        fields = {}
    reason = EndReason(fields.get("reason") or run.reason)
    if attempt is not None:
        close_attempt(attempt, reason, run.reason_message, now=now)
    said = OUTCOMES[reason].advice or (
        "all is done; the last checkpoint is stored" if trains else "all is done"
    )
    message = f"the last lines of {', '.join(gap)} did not arrive" if gap else said
    move_run(
        run, OUTCOMES[reason].status, now=now, message=message, conditions=["GAP"] if gap else [], **fields
    )
    fleet.announce_leases()


def _advance_recovering(run: Run, attempt: Attempt, jobs: list[Job], *, now: datetime) -> None:
    """The old attempt's jobs end and its newest checkpoint is stored first; a silent node is not waited for."""
    silent = attempt.node.liveness != Liveness.READY
    if silent or is_quiet(attempt, jobs, since=attempt.ending_at or now, now=now):
        close_attempt(attempt, EndReason(attempt.reason), attempt.message, now=now)
        _requeue(run, now=now)
        fleet.announce_leases()


def _requeue(run: Run, *, now: datetime) -> None:
    """Back to the queue for a new attempt; a failure when the last one committed checkpoints and none can be had. Those
    that a revoked node did not upload were given up on purpose: the run begins again."""
    last = run.attempts.order_by("-number").first()
    states = Checkpoint.objects.filter(kind=CheckpointKind.TRAINING)
    committed = last is not None and not last.node.is_revoked and states.filter(attempt_id=last.pk).exists()
    if committed and not states.filter(run_id=run.pk, state=CheckpointState.STORED).exists():
        message = "checkpoints were committed, but none of them reached the store"
        move_run(
            run, RunStatus.FAILED, now=now, message=message,
            **verdict_of(EndReason.NO_VALID_CHECKPOINT, message),
        )  # fmt: skip
        return
    rests = [reason for reason, outcome in OUTCOMES.items() if outcome.status is RunStatus.PAUSED]
    lost = run.attempts.exclude(reason__in=rests).count()
    move_run(
        run, RunStatus.QUEUED, now=now, message="waits for slots for a new attempt",
        not_before=now + timedelta(seconds=pause_before_retry(lost)), pending_reason="",
    )  # fmt: skip


def _goes_its_way(run: Run, attempt: Attempt | None, *, now: datetime) -> bool:
    if attempt is None or run.status not in WORKING or attempt.node.liveness == Liveness.LOST:
        return False
    verdict = judge(run.kind, [_view(job) for job in attempt.jobs.all()])
    ready = isinstance(verdict, Working) and not (verdict.all_running and run.status == RunStatus.STARTING)
    return ready and not _wall_time_over(run, now=now)


def _wall_time_over(run: Run, *, now: datetime) -> bool:
    bound = run.spec["budget"]["max_wall_seconds"]
    if bound is None or run.started_at is None:
        return False
    return now - run.started_at - timedelta(seconds=run.paused_seconds) > timedelta(seconds=bound)


def _view(job: Job) -> JobView:
    return JobView(
        name=job.name, kind=JobKind(job.kind), state=job.state, reason=job.reason, message=job.message,
        exit_code=job.exit_code, stop_asked=job.stop_asked_at is not None, leaving=job.leaving_at is not None,
    )  # fmt: skip
