"""When an attempt that ends is quiet: its jobs are gone, their last lines read, its last checkpoint stored."""

from __future__ import annotations

from datetime import datetime, timedelta

from control_plane.checkpoints.models import Checkpoint, CheckpointState
from control_plane.runs.models import Attempt, Job, Run
from oolong.contracts.lifecycle import JobKind, JobState

LAST_LINES_BOUND = timedelta(minutes=10)  # how long a run waits for the last lines of its jobs
STORE_BOUND = timedelta(minutes=60)  # and for the upload of its last checkpoint, while the node answers


def is_quiet(attempt: Attempt, jobs: list[Job], *, since: datetime, now: datetime) -> bool:
    """All jobs have exited, the server has read their last lines, their checkpoints are stored; or time is up."""
    if any(job.state != JobState.EXITED for job in jobs):
        return False
    if any(unread(job) for job in jobs) and now - since < LAST_LINES_BOUND:
        return False
    unstored = Checkpoint.objects.filter(attempt_id=attempt.pk, state=CheckpointState.LOCAL)
    newest = Checkpoint.objects.filter(attempt_id=attempt.pk).order_by("-step").first()
    if newest is not None and unstored.filter(step=newest.step).exists():
        return now - since >= STORE_BOUND
    return True


def quiet_since(jobs: list[Job], run: Run) -> datetime:
    ends = [job.ended_at for job in jobs if job.ended_at is not None]
    return max([run.status_at, *ends])


def final_is_stored(attempt: Attempt) -> bool:
    """The newest checkpoint of the attempt is in the store (an attempt that completes commits a final one)."""
    newest = Checkpoint.objects.filter(attempt_id=attempt.pk).order_by("-final", "-step").first()
    return newest is not None and newest.state == CheckpointState.STORED


def results_are_kept(attempt: Attempt, jobs: list[Job]) -> bool:
    """What the attempt was for is here: its last checkpoint, or without a trainer the last lines of its jobs."""
    if any(job.kind == JobKind.TRAINER for job in jobs):
        return final_is_stored(attempt)
    return not any(job.state != JobState.EXITED or unread(job) for job in jobs)


def gap_of(jobs: list[Job]) -> list[str]:
    return [job.name for job in jobs if unread(job)]


def unread(job: Job) -> dict[str, int]:
    """Bytes of each outbox file that the job wrote and the server has not stored."""
    return {
        file: size - job.outbox_read.get(file, 0)
        for file, size in job.outbox.items()
        if size > job.outbox_read.get(file, 0)
    }
