"""Applies nodes' reports about their jobs, then reconciles the runs of these jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from control_plane.fleet import selectors as fleet_selectors
from control_plane.fleet import services as fleet
from control_plane.fleet.models import Lease, Node
from control_plane.runs.drain import TELEMETRY_TIMEOUT, unshipped_bytes
from control_plane.runs.events import record_event
from control_plane.runs.locking import lock_run
from control_plane.runs.models import PENDING, Attempt, Job, Run, jobs_on
from control_plane.runs.reconciler import reconcile_run
from control_plane.runs.remote_engines import record_exit
from oolong.contracts.agent import ObservedJob
from oolong.contracts.lifecycle import AttemptStatus, EndReason, JobKind, JobState

MISSING_GRACE = timedelta(seconds=5)  # a job is gone when reports lack it for this long
START_TIMEOUT = timedelta(seconds=30)  # a stopped job that no report mentions for this long never started

# Exited evaluators and remote engines of active attempts, which their node forgets once their telemetry is stored.
_MAY_BE_FORGOTTEN = Q(state=JobState.EXITED) & (
    Q(evaluates__gt="") | Q(node__isnull=False, kind=JobKind.ROLLOUT)
)


def apply_report(node: Node, reports: Iterable[ObservedJob], *, now: datetime) -> list[str]:
    """Apply a node's full report of its jobs. Returns the IDs of jobs that the node may forget.

    The caller has committed the heartbeat itself. Each run has a separate transaction, because two nodes may report on
    the same run concurrently.
    """
    reported = {report.job_id: report for report in reports}
    known = list(
        jobs_on(node)
        .filter(~(Q(attempt__status=AttemptStatus.ENDED) | _MAY_BE_FORGOTTEN) | Q(pk__in=list(reported)))
        .select_related("attempt")
    )
    forget: list[str] = []
    # Unchanged jobs need no lock: a heartbeat without changes costs a few reads.
    for run_id in sorted({job.attempt.run_id for job in known if _has_changed(job, reported.get(job.pk))}):
        with transaction.atomic():
            run = lock_run(run_id)
            forget += _apply_to_run(run, node, reported, now=now)
            reconcile_run(run, now=now)
    _release_ended_attempts(node, reported, now=now)
    unknown = set(reported) - {job.pk for job in known}
    return [*forget, *(job for job in unknown if reported[job].state == JobState.EXITED)]


def record_shared_slots(node: Node, slots: Mapping[str, str], *, now: datetime) -> None:
    """An event for each run that holds a slot on which processes of others appeared. `slots`: whose they are."""
    if not slots:
        return
    for lease in Lease.objects.filter(slot__node=node, slot__name__in=slots, released_at=None).select_related(
        "slot"
    ):
        if (run := Run.objects.filter(pk=lease.run).first()) is not None:
            name = lease.slot.name
            message = f"{name} of {node.name}, which {lease.job_name} holds, is also used by {slots[name]}"
            record_event(
                run, "slot_shared", message, at=now, node=node.name, slot=name,
            )  # fmt: skip


def _has_changed(job: Job, report: ObservedJob | None) -> bool:
    if report is None or job.missing_at or JobState.EXITED in (job.state, report.state):
        return True
    if (
        report.input_bytes
        and job.node_id is None
        and report.fetched_bytes != job.attempt.boot.get("fetched_bytes")
    ):
        return True
    return (job.state, job.incarnation, job.pid, job.message) != (
        report.state, report.incarnation, report.pid, report.message[:4000],
    )  # fmt: skip


def _apply_to_run(run: Run, node: Node, reported: dict[str, ObservedJob], *, now: datetime) -> list[str]:
    forget, ended = [], []
    for job in jobs_on(node).filter(attempt__run=run).select_related("attempt"):
        job.attempt.run = run  # the locked row
        report, before = reported.get(job.pk), job.state
        if job.attempt.status == AttemptStatus.ENDED:
            if report is not None and report.state == JobState.EXITED:
                _record_offsets(job, report)
                if not unshipped_bytes(job) or _long_ended(job.attempt, now=now):
                    forget.append(job.pk)
            continue
        if report is not None:
            if report.epoch != job.attempt.epoch:
                continue
            _apply_job_report(job, report, now=now)
            if job.state == JobState.EXITED and not unshipped_bytes(job):
                forget.append(job.pk)
        elif job.state != JobState.EXITED and job.observed_at is not None:
            _record_absence(job, now=now)
        elif (
            job.state == PENDING and job.stop_asked_at is not None and now - job.stop_asked_at > START_TIMEOUT
        ):
            _mark_exited(job, EndReason.STOPPED_BY_USER, "it was stopped before it started", now=now)
        if job.state == JobState.EXITED and before != JobState.EXITED:
            ended.append(job.pk)
            if job.is_remote:
                record_exit(job, now=now)
    if ended:
        fleet.release_jobs(ended, now=now)  # all at once, which locks them in order
    return forget


def _apply_job_report(job: Job, report: ObservedJob, *, now: datetime) -> None:
    if job.state == JobState.EXITED:
        _record_offsets(job, report)
        return
    if job.node_id is None:
        _record_fetched_bytes(job.attempt, report)
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
        _record_offsets(job, report)
    if before != (job.state, job.incarnation):
        record_event(
            job.attempt.run, "job", _job_message(job, restarted=job.incarnation > before[1]),
            at=now, attempt_number=job.attempt.number,
            job={"id": job.pk, "name": job.name, "state": str(job.state), "incarnation": job.incarnation},
        )  # fmt: skip


def _record_fetched_bytes(attempt: Attempt, report: ObservedJob) -> None:
    """Record how many bytes of the inputs are on the node (runs.boot)."""
    fetched = {"fetched_bytes": report.fetched_bytes, "input_bytes": report.input_bytes}
    if report.input_bytes and not fetched.items() <= attempt.boot.items():
        attempt.boot = {**attempt.boot, **fetched}
        Attempt.objects.filter(pk=attempt.pk).update(boot=attempt.boot)


def _job_message(job: Job, *, restarted: bool) -> str:
    if job.state == JobState.EXITED:
        stopped = job.reason == EndReason.STOPPED_BY_USER  # also jobs that the end of the run stops
        why = "stopped as requested" if stopped else job.reason or f"code {job.exit_code}"
        return f"{job.name} exited: {why}{' · ' + job.message if job.message else ''}"
    if restarted:
        return f"{job.name} was restarted in place ({job.incarnation} of {job.restarts})"
    return f"{job.name} is running" if job.state == JobState.RUNNING else f"{job.name} is fetching its inputs"


def _record_absence(job: Job, *, now: datetime) -> None:
    """A report lacks the job. One such report proves nothing, not even with another boot ID: it may be an old request
    that arrives late."""
    if job.missing_at is None:
        job.missing_at = now
        job.save(update_fields=["missing_at"])
    elif now - job.missing_at >= MISSING_GRACE:
        _mark_exited(job, EndReason.NODE_LOST, "the node no longer has the job", now=now)


def _record_offsets(job: Job, report: ObservedJob) -> None:
    """Record the final sizes of the outbox files, and how much of them the server has confirmed."""
    written = {item.file: item.bytes for item in report.outbox}
    read = dict(job.outbox_read)
    for item in report.outbox:
        read[item.file] = max(read.get(item.file, 0), item.shipped)
    if written != job.outbox or read != job.outbox_read:
        job.outbox, job.outbox_read = written, read
        job.save(update_fields=["outbox", "outbox_read"])


def _mark_exited(job: Job, reason: EndReason, message: str, *, now: datetime) -> None:
    job.state, job.reason, job.message, job.ended_at = JobState.EXITED, reason, message, now
    job.save(update_fields=["state", "reason", "message", "ended_at"])
    record_event(job.attempt.run, "job", f"{job.name}: {message}", at=now, attempt_number=job.attempt.number)


def _long_ended(attempt: Attempt, *, now: datetime) -> bool:
    return attempt.ended_at is not None and now - attempt.ended_at > TELEMETRY_TIMEOUT


def _release_ended_attempts(node: Node, reported: dict[str, ObservedJob], *, now: datetime) -> None:
    """Release slots of ended attempts whose jobs are gone: the node reports again, without these jobs."""
    candidates = jobs_on(node).filter(
        attempt__status=AttemptStatus.ENDED, pk__in=fleet_selectors.leased_jobs(node)
    )
    gone = [job.pk for job in candidates if _is_gone(job, reported.get(job.pk), now=now)]
    if gone:
        with transaction.atomic():
            fleet.release_jobs(gone, now=now)
            fleet.publish_lease_change()


def _is_gone(job: Job, report: ObservedJob | None, *, now: datetime) -> bool:
    """As in `_record_absence`, one report without the job proves nothing."""
    if report is not None:
        if job.missing_at is not None:
            Job.objects.filter(pk=job.pk).update(missing_at=None)
        return report.state == JobState.EXITED
    if job.state == JobState.EXITED:
        return True
    if job.missing_at is None:
        Job.objects.filter(pk=job.pk).update(missing_at=now)
        return False
    return now - job.missing_at >= MISSING_GRACE
