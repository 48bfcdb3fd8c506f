"""How a run is brought to its end: whoever ends it names a cause, and a table says what becomes of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control_plane.fleet import services as fleet
from control_plane.runs.attempt_status import retry_follows
from control_plane.runs.events import announce_run, move_run, note
from control_plane.runs.models import Attempt, Run
from control_plane.runs.selectors import live_attempt, resumable_checkpoint
from oolong.contracts.lifecycle import OUTCOMES, AttemptStatus, EndReason, Fault, JobKind, JobState, RunStatus

CANCEL_GRACE_SECONDS = 5.0
NEEDS_ATTENTION = "NEEDS_ATTENTION"  # a condition: it was paused for a fault, and somebody has to look


def begin_stop(run: Run, reason: EndReason, message: str, *, now: datetime) -> None:
    """STOPPING: the trainer takes a checkpoint and ends; the others follow (see `_advance_stopping`)."""
    move_run(run, RunStatus.STOPPING, now=now, message=message, **verdict_of(reason, message))
    attempt = live_attempt(run)
    if attempt is None:
        move_run(run, RunStatus.STOPPED, now=now)
        return
    _ask_first(attempt, now=now)


def begin_cancel(run: Run, message: str, *, now: datetime) -> None:
    """STOPPING without a last checkpoint: every job is asked at once, and killed when it takes its time."""
    fields = verdict_of(EndReason.CANCELLED_BY_USER, message)
    attempt = live_attempt(run)
    if run.status == RunStatus.STOPPING:  # a stop was asked for before; it waits no longer
        Run.objects.filter(pk=run.pk).update(**fields)
        for name, value in fields.items():
            setattr(run, name, value)
        note(run, "cancel", message, at=now)
        announce_run(run)
    else:
        move_run(run, RunStatus.STOPPING, now=now, message=message, **fields)
    if attempt is None:
        move_run(run, RunStatus.STOPPED, now=now)
        return
    _shorten_graces(attempt)
    ask_stop(attempt, now=now)
    fleet.ring([attempt.node_id])


def hasten(run: Run, message: str, *, now: datetime) -> bool:
    """A run that is FINALIZING keeps its end; its jobs are asked at once, and killed when they take their time. False
    when there is nothing left to hasten."""
    attempt = live_attempt(run)
    if attempt is None or not _shorten_graces(attempt):
        return False
    ask_stop(attempt, now=now)
    fleet.ring([attempt.node_id])
    note(run, "cancel", message, at=now)
    announce_run(run)
    return True


def _shorten_graces(attempt: Attempt) -> int:
    """How many jobs have less time than before."""
    alive = attempt.jobs.exclude(state=JobState.EXITED).filter(grace_seconds__gt=CANCEL_GRACE_SECONDS)
    return alive.update(grace_seconds=CANCEL_GRACE_SECONDS)


def force_end(run: Run, message: str, *, now: datetime) -> None:
    """STOPPED now. The attempt is fenced and no longer desired, so its node ends the jobs when it hears of it; until
    it has said so, or is lost, the slots are nobody else's."""
    attempt = live_attempt(run)
    if attempt is not None:
        kept = sum(len(job.slots) for job in attempt.jobs.exclude(state=JobState.EXITED))
        close_attempt(attempt, EndReason.FORCED_BY_OPERATOR, message, now=now)
        if kept:
            message += f"; {kept} slots stay leased until {attempt.node.name} has ended its jobs"
    fields = verdict_of(EndReason.FORCED_BY_OPERATOR, message)
    move_run(run, RunStatus.STOPPED, now=now, message=message, **fields)
    fleet.announce_leases()


def begin_pause(
    run: Run,
    reason: EndReason = EndReason.PAUSED_BY_USER,
    message: str = "pause was asked for",
    *,
    now: datetime,
) -> None:
    """PAUSING: as a stop, but the run goes on later from the checkpoint that the trainer takes now."""
    move_run(run, RunStatus.PAUSING, now=now, message=message, **verdict_of(reason, message))
    attempt = live_attempt(run)
    if attempt is None:
        rest(run, now=now)
        return
    _ask_first(attempt, now=now)


def rest(run: Run, *, now: datetime, conditions: list[str] | None = None) -> None:
    """PAUSED: no attempt, no slot, no place in the queue."""
    checkpoint = resumable_checkpoint(run)
    goes_on = (
        f"goes on from step {checkpoint.step}" if checkpoint else "will begin anew: it has no checkpoint"
    )
    reason = EndReason(run.reason or EndReason.PAUSED_BY_USER)
    why = "paused" if reason is EndReason.PAUSED_BY_USER else run.reason_message
    attention = [NEEDS_ATTENTION] if OUTCOMES[reason].fault is not Fault.NONE else []
    move_run(
        run, RunStatus.PAUSED, now=now, message=f"paused; {goes_on}", conditions=[*(conditions or []), *attention],
        pending_reason="", queue_position=None, progress=None,
        **verdict_of(reason, f"{why}; {goes_on} when it is resumed"),
    )  # fmt: skip


def end_attempt(run: Run, attempt: Attempt, cause: EndReason, message: str, *, now: datetime) -> None:
    """The attempt is over for this cause; one table says what becomes of the run (contracts.lifecycle.OUTCOMES)."""
    outcome = OUTCOMES[cause]
    lost_before = list(
        run.attempts.filter(status=AttemptStatus.ENDED).exclude(reason="").values_list("reason", flat=True)
    )
    attempt.status, attempt.reason, attempt.message = AttemptStatus.ENDING, cause, message[:4000]
    attempt.ending_at = now
    attempt.save(update_fields=["status", "reason", "message", "ending_at"])
    ask_stop(attempt, now=now)
    note(
        run, "attempt_ended", f"attempt {attempt.number}: {message}", at=now, attempt_number=attempt.number,
        cause=cause, fault=outcome.fault,
    )  # fmt: skip
    max_attempts = int(run.spec["budget"]["max_attempts"])
    if retry_follows(cause, lost_before=lost_before, max_attempts=max_attempts):
        move_run(
            run, RunStatus.RECOVERING, now=now, message=message, pending_reason=f"recovers: {message}"[:400]
        )
    elif run.status == RunStatus.FINALIZING:
        move_run(run, outcome.status, now=now, message=message, **verdict_of(cause, message))
    else:
        move_run(run, RunStatus.FINALIZING, now=now, message=message, **verdict_of(cause, message))


def end_with_node(run: Run, attempt: Attempt, *, now: datetime) -> None:
    """The attempt is over because its node is LOST: fallen silent, or revoked."""
    revoked = attempt.node.is_revoked
    cause = EndReason.NODE_REVOKED if revoked else EndReason.NODE_LOST
    message = f"{attempt.node.name} {'was taken out of its pool' if revoked else 'is lost'}"
    end_attempt(run, attempt, cause, message, now=now)


def close_attempt(attempt: Attempt, cause: EndReason, message: str, *, now: datetime) -> None:
    """ENDED: its epoch is fenced from here on. Slots of jobs that are not known dead stay leased."""
    attempt.status, attempt.ended_at = AttemptStatus.ENDED, now
    attempt.reason, attempt.message = attempt.reason or cause, attempt.message or message
    attempt.save(update_fields=["status", "ended_at", "reason", "message"])
    fleet.ring([attempt.node_id])


def ask_stop(attempt: Attempt, *, now: datetime, kinds: set[JobKind] | None = None) -> None:
    jobs = attempt.jobs.filter(stop_asked_at=None).exclude(state=JobState.EXITED)
    if kinds is not None:
        jobs = jobs.filter(kind__in=kinds)
    if jobs.update(stop_asked_at=now):
        fleet.ring([attempt.node_id])


def _ask_first(attempt: Attempt, *, now: datetime) -> None:
    """The trainer, which takes a checkpoint and the others with it; without one, everybody."""
    trains = attempt.jobs.filter(kind=JobKind.TRAINER).exists()
    ask_stop(attempt, kinds={JobKind.TRAINER} if trains else None, now=now)


def verdict_of(cause: EndReason, message: str) -> dict[str, Any]:
    return {
        "reason": cause,
        "reason_message": message or OUTCOMES[cause].advice,
        "fault": OUTCOMES[cause].fault,
    }
