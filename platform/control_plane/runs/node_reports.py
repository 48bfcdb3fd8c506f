"""What nodes report of their jobs: each report is taken as the truth about a job, then its run moves on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from control_plane.fleet import selectors as fleet_selectors
from control_plane.fleet import services as fleet
from control_plane.fleet.models import Node
from control_plane.runs.drain import LAST_LINES_BOUND, unread
from control_plane.runs.events import note
from control_plane.runs.locking import lock_run
from control_plane.runs.models import PENDING, Attempt, Job, Run
from control_plane.runs.reconciler import advance_run
from oolong.contracts.agent import ObservedJob
from oolong.contracts.lifecycle import AttemptStatus, EndReason, JobState

MISSING = timedelta(seconds=5)  # one late report without a job proves nothing; a later one does
NEVER_STARTED = timedelta(seconds=30)  # a job asked to stop, and not reported for this long, never began

# Of a live attempt, and forgotten by its node once it was read.
_OVER = Q(evaluates__gt="", state=JobState.EXITED)


def observe(node: Node, reports: Iterable[ObservedJob], *, rebooted: bool, now: datetime) -> list[str]:
    """Take a node's full report of its jobs. Returns the ids of jobs that it may forget.

    The caller has committed the heartbeat itself. Each run is handled in a transaction of its own, because two
    nodes may report on the same run at once.
    """
    reported = {report.job_id: report for report in reports}
    known = list(
        Job.objects.filter(attempt__node=node)
        .filter(~(Q(attempt__status=AttemptStatus.ENDED) | _OVER) | Q(pk__in=list(reported)))
        .select_related("attempt")
    )
    forget: list[str] = []
    # What is as it was needs no lock: a quiet heartbeat costs a few reads.
    for run_id in sorted(
        {job.attempt.run_id for job in known if _is_news(job, reported.get(job.pk), rebooted)}
    ):
        with transaction.atomic():
            run = lock_run(run_id)
            forget += _observe_run(run, node, reported, rebooted=rebooted, now=now)
            advance_run(run, now=now)
    _release_what_is_gone(node, reported, rebooted=rebooted, now=now)
    strangers = set(reported) - {job.pk for job in known}
    return [*forget, *(job for job in strangers if reported[job].state == JobState.EXITED)]


def _is_news(job: Job, report: ObservedJob | None, rebooted: bool) -> bool:
    if report is None or rebooted or job.missing_at or JobState.EXITED in (job.state, report.state):
        return True
    if report.input_bytes and report.fetched_bytes != job.attempt.boot.get("fetched_bytes"):
        return True
    return (job.state, job.incarnation, job.pid, job.message) != (
        report.state, report.incarnation, report.pid, report.message[:4000],
    )  # fmt: skip


def _observe_run(
    run: Run, node: Node, reported: dict[str, ObservedJob], *, rebooted: bool, now: datetime
) -> list[str]:
    forget, ended = [], []
    for job in Job.objects.filter(attempt__run=run, attempt__node=node).select_related("attempt"):
        job.attempt.run = run  # the locked row
        report, before = reported.get(job.pk), job.state
        if job.attempt.status == AttemptStatus.ENDED:
            if report is not None and report.state == JobState.EXITED:
                _take_offsets(job, report)
                if not unread(job) or _long_ended(job.attempt, now=now):
                    forget.append(job.pk)
            continue
        if report is not None:
            if report.epoch != job.attempt.epoch:
                continue
            _take_report(job, report, now=now)
            if job.state == JobState.EXITED and not unread(job):
                forget.append(job.pk)
        elif job.state != JobState.EXITED and rebooted:
            _exit_unseen(job, EndReason.NODE_LOST, "the node was restarted", now=now)
        elif job.state != JobState.EXITED and job.observed_at is not None:
            _take_absence(job, now=now)
        elif (
            job.state == PENDING and job.stop_asked_at is not None and now - job.stop_asked_at > NEVER_STARTED
        ):
            _exit_unseen(job, EndReason.STOPPED_BY_USER, "it was stopped before it began", now=now)
        if job.state == JobState.EXITED and before != JobState.EXITED:
            ended.append(job.pk)
    if ended:
        fleet.release_jobs(ended, now=now)  # all at once, for the order of their locks
    return forget


def _take_report(job: Job, report: ObservedJob, *, now: datetime) -> None:
    if job.state == JobState.EXITED:
        _take_offsets(job, report)
        return
    _take_fetched(job.attempt, report)
    before = (job.state, job.incarnation)
    fields: dict[str, Any] = {
        "state": report.state, "incarnation": report.incarnation, "pid": report.pid,
        "exit_code": report.exit_code, "reason": report.reason or "", "message": report.message[:4000],
        "observed_at": job.observed_at or now, "missing_at": None,
    }  # fmt: skip
    if report.state == JobState.RUNNING:
        fields["started_at"] = job.started_at or now
    if report.state == JobState.EXITED:
        fields["ended_at"] = now
    changed = [name for name, value in fields.items() if getattr(job, name) != value]
    if not changed:
        return
    for name in changed:
        setattr(job, name, fields[name])
    job.save(update_fields=changed)
    if report.state == JobState.EXITED:
        _take_offsets(job, report)
    if before != (job.state, job.incarnation):
        note(
            job.attempt.run, "job", _news_of(job, restarted=job.incarnation > before[1]),
            at=now, attempt_number=job.attempt.number,
            job={"id": job.pk, "name": job.name, "state": str(job.state), "incarnation": job.incarnation},
        )  # fmt: skip


def _take_fetched(attempt: Attempt, report: ObservedJob) -> None:
    """How much of its inputs is on the node (runs.boot)."""
    fetched = {"fetched_bytes": report.fetched_bytes, "input_bytes": report.input_bytes}
    if report.input_bytes and not fetched.items() <= attempt.boot.items():
        attempt.boot = {**attempt.boot, **fetched}
        Attempt.objects.filter(pk=attempt.pk).update(boot=attempt.boot)


def _news_of(job: Job, *, restarted: bool) -> str:
    if job.state == JobState.EXITED:
        stopped = job.reason == EndReason.STOPPED_BY_USER  # the run's end asks some jobs to stop as well
        why = "it was asked to stop" if stopped else job.reason or f"code {job.exit_code}"
        return f"{job.name} has exited: {why}{' · ' + job.message if job.message else ''}"
    if restarted:
        return f"{job.name} was restarted in place ({job.incarnation} of {job.restarts})"
    return f"{job.name} runs" if job.state == JobState.RUNNING else f"{job.name} fetches its inputs"


def _take_absence(job: Job, *, now: datetime) -> None:
    """A report without a job that was there before: an abandoned request that arrives late looks the same."""
    if job.missing_at is None:
        job.missing_at = now
        job.save(update_fields=["missing_at"])
    elif now - job.missing_at >= MISSING:
        _exit_unseen(job, EndReason.NODE_LOST, "the node does not know the job any more", now=now)


def _take_offsets(job: Job, report: ObservedJob) -> None:
    """Final sizes of the outbox, and what the server has confirmed to the agent."""
    written = {item.file: item.bytes for item in report.outbox}
    read = dict(job.outbox_read)
    for item in report.outbox:
        read[item.file] = max(read.get(item.file, 0), item.shipped)
    if written != job.outbox or read != job.outbox_read:
        job.outbox, job.outbox_read = written, read
        job.save(update_fields=["outbox", "outbox_read"])


def _exit_unseen(job: Job, reason: EndReason, message: str, *, now: datetime) -> None:
    job.state, job.reason, job.message, job.ended_at = JobState.EXITED, reason, message, now
    job.save(update_fields=["state", "reason", "message", "ended_at"])
    note(job.attempt.run, "job", f"{job.name}: {message}", at=now, attempt_number=job.attempt.number)


def _long_ended(attempt: Attempt, *, now: datetime) -> bool:
    return attempt.ended_at is not None and now - attempt.ended_at > LAST_LINES_BOUND


def _release_what_is_gone(
    node: Node, reported: dict[str, ObservedJob], *, rebooted: bool, now: datetime
) -> None:
    """Slots of attempts that were given up: the node answers again and no longer has the job, so it is dead."""
    given_up = Job.objects.filter(
        attempt__node=node, attempt__status=AttemptStatus.ENDED, pk__in=fleet_selectors.leased_jobs(node)
    )
    gone = [job.pk for job in given_up if _is_gone(job, reported.get(job.pk), rebooted=rebooted, now=now)]
    if gone:
        with transaction.atomic():
            fleet.release_jobs(gone, now=now)
            fleet.announce_leases()


def _is_gone(job: Job, report: ObservedJob | None, *, rebooted: bool, now: datetime) -> bool:
    """As in `_take_absence`, one report without the job proves nothing."""
    if report is not None:
        if job.missing_at is not None:
            Job.objects.filter(pk=job.pk).update(missing_at=None)
        return report.state == JobState.EXITED
    if rebooted or job.state == JobState.EXITED:
        return True
    if job.missing_at is None:
        Job.objects.filter(pk=job.pk).update(missing_at=now)
        return False
    return now - job.missing_at >= MISSING
