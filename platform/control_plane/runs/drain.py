"""Drains an ending attempt: its jobs have exited, their telemetry and the last checkpoint are stored."""

from __future__ import annotations

from datetime import datetime, timedelta

from control_plane.checkpoints.models import Checkpoint, CheckpointState
from control_plane.fleet.models import Liveness
from control_plane.runs.models import Attempt, Job, Run
from oolong.contracts.lifecycle import JobKind, JobState

TELEMETRY_TIMEOUT = timedelta(minutes=10)  # how long a run waits for the last telemetry of its jobs
UPLOAD_TIMEOUT = timedelta(minutes=60)  # and for the upload of its last checkpoint


def is_drained(attempt: Attempt, jobs: list[Job], *, since: datetime, now: datetime) -> bool:
    """All jobs have exited, and their telemetry and last checkpoint are stored or timed out. Nothing waits for jobs
    on other nodes than the attempt's that do not respond."""
    jobs = [job for job in jobs if not on_silent_node(job)]
    if any(job.state != JobState.EXITED for job in jobs):
        return False
    if any(unshipped_bytes(job) for job in jobs) and now - since < TELEMETRY_TIMEOUT:
        return False
    unstored = Checkpoint.objects.filter(attempt_id=attempt.pk, state=CheckpointState.LOCAL)
    newest = Checkpoint.objects.filter(attempt_id=attempt.pk).order_by("-step").first()
    if newest is not None and unstored.filter(step=newest.step).exists():
        return now - since >= UPLOAD_TIMEOUT
    return True


def draining_since(jobs: list[Job], run: Run) -> datetime:
    ends = [job.ended_at for job in jobs if job.ended_at is not None]
    return max([run.status_at, *ends])


def final_is_stored(attempt: Attempt) -> bool:
    """Whether the newest checkpoint of the attempt is stored. A completed attempt commits a final one."""
    newest = Checkpoint.objects.filter(attempt_id=attempt.pk).order_by("-final", "-step").first()
    return newest is not None and newest.state == CheckpointState.STORED


def results_are_stored(attempt: Attempt, jobs: list[Job]) -> bool:
    """Whether the result of the attempt is stored: its last checkpoint, or without a trainer the telemetry of its
    jobs."""
    if any(job.kind == JobKind.TRAINER for job in jobs):
        return final_is_stored(attempt)
    return not any(job.state != JobState.EXITED or unshipped_bytes(job) for job in jobs)


def incomplete_jobs(jobs: list[Job]) -> list[str]:
    return [
        job.name
        for job in jobs
        if unshipped_bytes(job) or (job.state != JobState.EXITED and on_silent_node(job))
    ]


def on_silent_node(job: Job) -> bool:
    """Whether it is on another node than the attempt's, and that node does not respond."""
    return job.node_id is not None and job.placed_on.liveness != Liveness.READY


def unshipped_bytes(job: Job) -> dict[str, int]:
    """Bytes per outbox file that the job has written and the server has not stored."""
    return {
        file: size - job.outbox_read.get(file, 0)
        for file, size in job.outbox.items()
        if size > job.outbox_read.get(file, 0)
    }
