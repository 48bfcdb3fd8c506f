"""Every write to runs: create, stop, cancel, place, observe, advance, end. Callers of state changes name a cause."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q

from control_plane.accounts.caller import Caller
from control_plane.accounts.secrets import new_secret
from control_plane.catalog.models import Checkpoint, CheckpointState
from control_plane.common import live
from control_plane.common.errors import conflict, unprocessable
from control_plane.fleet import selectors as fleet_selectors
from control_plane.fleet import services as fleet
from control_plane.fleet.models import Intent, Liveness, Node
from control_plane.fleet.scheduler import Request, Snapshot, plan
from control_plane.runs.events import announce_run, move_run, note, set_conditions
from control_plane.runs.models import PENDING, Attempt, Job, Run
from control_plane.runs.plan_jobs import plan_jobs, port_names
from control_plane.runs.records import (
    record_checkpoint_line,
    record_note,
    record_progress,
    record_read_offset,
    record_step,
    record_summary,
)
from control_plane.runs.resolve import resolve_spec
from control_plane.runs.selectors import live_attempt, newest_stored_checkpoint, queue
from control_plane.runs.show import checkpoint_as_json
from control_plane.runs.status import Broken, Done, JobView, Working, judge, pause_before_retry, retry_follows
from oolong.contracts.agent import ObservedJob
from oolong.contracts.lifecycle import (
    ENDED,
    OUTCOMES,
    AttemptStatus,
    EndReason,
    JobKind,
    JobState,
    RunStatus,
)
from oolong.contracts.run_spec import RunSpec

__all__ = [
    "record_checkpoint_line", "record_note", "record_progress", "record_read_offset", "record_step", "record_summary",
]  # fmt: skip

log = logging.getLogger(__name__)

_WORKING = (RunStatus.STARTING, RunStatus.RUNNING)
LAST_LINES_BOUND = timedelta(minutes=10)  # how long a run waits for the last lines of its jobs
STORE_BOUND = timedelta(minutes=60)  # and for the upload of its last checkpoint, while the node answers
FOLLOW_TRAINER = timedelta(
    seconds=20
)  # after a stopped trainer, the other jobs end by themselves within this
MISSING = timedelta(seconds=5)  # one late report without a job proves nothing; a later one does
NEVER_STARTED = timedelta(seconds=30)  # a job asked to stop, and not reported for this long, never began


# --- asked for by people ----------------------------------------------------------------------------------


def create_run(caller: Caller, document: Any, *, now: datetime) -> Run:
    """Check the spec, resolve what it names, and queue the run. 422 with pointers into the spec."""
    resolved = resolve_spec(caller, document)
    if resolved.errors:
        first = resolved.errors[0]
        more = f" (and {len(resolved.errors) - 1} more)" if len(resolved.errors) > 1 else ""
        raise unprocessable("spec_invalid", f"{first.pointer or '/'}: {first.message}{more}", resolved.errors)
    spec = resolved.spec
    assert spec is not None and resolved.dataset_version is not None
    with transaction.atomic():
        run = Run.objects.create(
            project=caller.project, created_by=caller.user, name=spec.name, kind=spec.kind,
            spec=resolved.document, dataset_version=resolved.dataset_version,
            evaluation_version=resolved.evaluation_version, base_model=resolved.base_model,
            initial_checkpoint=resolved.initial_checkpoint, notes=spec.notes, status_at=now, created_at=now,
            priority=spec.placement.priority, slots_needed=spec.slots_needed,
            total_train_steps=spec.sft.steps if spec.kind == "sft" else spec.trainer.total_train_steps,
        )  # fmt: skip
        note(run, "created", f"submitted by {caller.user.username}", at=now)
        announce_run(run)
        fleet.announce_queue()
    return run


def cancel_run(run_id: str, *, now: datetime) -> Run:
    """Take a run out of the queue. 409 when it is not in it."""
    with transaction.atomic():
        run = lock_run(run_id)
        if run.status != RunStatus.QUEUED:
            raise conflict(
                "not_queued",
                f"the run is {run.status}; cancel is for queued runs, use stop",
                current_status=run.status,
            )
        _end_queued(run, now=now)
    return run


def stop_run(run_id: str, *, now: datetime) -> Run:
    """Ask for an end with a checkpoint. Asking again changes nothing; 409 when the run has ended."""
    with transaction.atomic():
        run = lock_run(run_id)
        if run.status == RunStatus.STOPPING:
            return run
        if run.has_ended:
            raise conflict("has_ended", f"the run is {run.status} already", current_status=run.status)
        if run.status == RunStatus.QUEUED:
            _end_queued(run, now=now)
            return run
        _begin_stop(run, EndReason.STOPPED_BY_USER, "stop was asked for", now=now)
    return run


def _end_queued(run: Run, *, now: datetime) -> None:
    reason = EndReason.CANCELLED_WHILE_QUEUED if run.attempt_number == 0 else EndReason.STOPPED_BY_USER
    move_run(run, RunStatus.STOPPED, now=now, message="taken out of the queue", **_verdict(reason, ""))
    fleet.announce_queue()


def _begin_stop(run: Run, reason: EndReason, message: str, *, now: datetime) -> None:
    """STOPPING: the trainer takes a checkpoint and ends; the others follow (see `_advance_stopping`)."""
    move_run(run, RunStatus.STOPPING, now=now, message=message, **_verdict(reason, message))
    attempt = live_attempt(run)
    if attempt is None:
        move_run(run, RunStatus.STOPPED, now=now)
        return
    _ask_stop(attempt, kinds={JobKind.TRAINER}, now=now)


# --- placement --------------------------------------------------------------------------------------------


def place_jobs(*, now: datetime) -> int:
    """Give queued runs their slots, in the scheduler's order; note for the others why they wait."""
    waiting = {run.pk: run for run in queue()}
    if not waiting:
        return 0
    decided = plan(
        Snapshot(
            now=now,
            nodes=fleet_selectors.node_views(),
            queue=[_request(run) for run in waiting.values()],
            used=fleet_selectors.used_slots(),
            limits=fleet_selectors.limits(),
        )
    )
    placed = 0
    for placement in decided.placements:
        try:
            with transaction.atomic():
                placed += _place(placement.request, placement.node, placement.slots, now=now)
        except IntegrityError:
            # Somebody else sold one of the slots meanwhile; the next tick plans anew.
            log.warning("run %s could not be placed on %s", placement.request, placement.node, exc_info=True)
    for run_id, why in decided.waiting.items():
        run = waiting[run_id]
        if run.waiting_why != why or run.queue_position != decided.positions[run_id]:
            with transaction.atomic():
                _note_waiting(run_id, why, decided.positions[run_id], now=now)
    return placed


def _request(run: Run) -> Request:
    return Request(
        id=run.pk, name=run.name, team=run.project.team_id, priority=run.priority, slots=run.slots_needed,
        submitted_at=run.created_at, not_before=run.not_before,
    )  # fmt: skip


def _note_waiting(run_id: str, why: str, position: int, *, now: datetime) -> None:
    run = lock_run(run_id)
    if run.status != RunStatus.QUEUED:
        return
    # A countdown changes every second; only a new kind of reason is an event.
    said_before = run.waiting_why.split(" in ")[0]
    run.waiting_why, run.queue_position = why[:400], position
    run.save(update_fields=["waiting_why", "queue_position"])
    if why.split(" in ")[0] != said_before:
        note(run, "waiting", why, at=now)
        announce_run(run)
        fleet.announce_queue()


def _place(run_id: str, node_id: str, slots: tuple[str, ...], *, now: datetime) -> bool:
    """A new attempt with its jobs and leases, all or nothing. The lease's unique index guards against a race."""
    run = lock_run(run_id)
    node = Node.objects.select_for_update().get(pk=node_id)
    if run.status != RunStatus.QUEUED or node.liveness != Liveness.READY or node.intent != Intent.ACTIVE:
        return False
    spec = RunSpec.model_validate(run.spec)
    resume = newest_stored_checkpoint(run)
    names = port_names(spec)
    attempt = Attempt.objects.create(
        run=run, number=run.attempt_number + 1, epoch=run.epoch + 1, node=node, token=new_secret(""),
        ports=dict(zip(names, fleet.allocate_ports(node, len(names)), strict=True)),
        resume_checkpoint=resume, created_at=now,
    )  # fmt: skip
    plans = plan_jobs(spec, slots)
    jobs = [
        Job.objects.create(
            attempt=attempt, name=job.name, kind=job.kind, index=job.index, slots=list(job.slots),
            restarts=job.restarts, grace_seconds=job.grace_seconds,
        )
        for job in plans
    ]  # fmt: skip
    fleet.grant_leases(
        node=node, team=run.project.team, holder=attempt.pk, epoch=attempt.epoch, run=run.pk, run_name=run.name,
        grants=[fleet.Grant(slot, job.pk, job.name) for job in jobs for slot in job.slots], now=now,
    )  # fmt: skip
    fleet.ring([node.pk])
    move_run(
        run, RunStatus.STARTING, now=now, message=f"attempt {attempt.number} on {node.name}",
        attempt_number=attempt.number, epoch=attempt.epoch, waiting_why="", queue_position=None, not_before=None,
        started_at=run.started_at or now, reason="", reason_message="", fault="",
        train_step=resume.step if resume else 0,
    )  # fmt: skip
    fleet.announce_leases()
    return True


# --- what nodes report ------------------------------------------------------------------------------------


def observe(node: Node, reports: Iterable[ObservedJob], *, rebooted: bool, now: datetime) -> list[str]:
    """Take a node's full report of its jobs. Returns the ids of jobs that it may forget.

    The caller has committed the heartbeat itself. Each run is handled in a transaction of its own, because two
    nodes may report on the same run at once.
    """
    reported = {report.job_id: report for report in reports}
    known = list(
        Job.objects.filter(attempt__node=node)
        .filter(~Q(attempt__status=AttemptStatus.ENDED) | Q(pk__in=list(reported)))
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
            _advance(run, now=now)
    _release_what_is_gone(node, reported, now=now)
    strangers = set(reported) - {job.pk for job in known}
    return [*forget, *(job for job in strangers if reported[job].state == JobState.EXITED)]


def _is_news(job: Job, report: ObservedJob | None, rebooted: bool) -> bool:
    if report is None or rebooted or job.missing_at or JobState.EXITED in (job.state, report.state):
        return True
    return (job.state, job.incarnation, job.pid, job.message) != (
        report.state, report.incarnation, report.pid, report.message[:4000],
    )  # fmt: skip


def _observe_run(
    run: Run, node: Node, reported: dict[str, ObservedJob], *, rebooted: bool, now: datetime
) -> list[str]:
    forget = []
    for job in Job.objects.filter(attempt__run=run, attempt__node=node).select_related("attempt"):
        job.attempt.run = run  # the locked row
        report = reported.get(job.pk)
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
    return forget


def _take_report(job: Job, report: ObservedJob, *, now: datetime) -> None:
    if job.state == JobState.EXITED:
        _take_offsets(job, report)
        return
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
        fleet.release_jobs([job.pk], now=now)
    if before != (job.state, job.incarnation):
        note(
            job.attempt.run, "job", _news_of(job, restarted=job.incarnation > before[1]),
            at=now, attempt_number=job.attempt.number,
            job={"id": job.pk, "name": job.name, "state": str(job.state), "incarnation": job.incarnation},
        )  # fmt: skip


def _news_of(job: Job, *, restarted: bool) -> str:
    if job.state == JobState.EXITED:
        why = job.reason or f"code {job.exit_code}"
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


def unread(job: Job) -> dict[str, int]:
    """Bytes of each outbox file that the job wrote and the server has not stored."""
    return {
        file: size - job.outbox_read.get(file, 0)
        for file, size in job.outbox.items()
        if size > job.outbox_read.get(file, 0)
    }


def _exit_unseen(job: Job, reason: EndReason, message: str, *, now: datetime) -> None:
    job.state, job.reason, job.message, job.ended_at = JobState.EXITED, reason, message, now
    job.save(update_fields=["state", "reason", "message", "ended_at"])
    fleet.release_jobs([job.pk], now=now)
    note(job.attempt.run, "job", f"{job.name}: {message}", at=now, attempt_number=job.attempt.number)


def _long_ended(attempt: Attempt, *, now: datetime) -> bool:
    return attempt.ended_at is not None and now - attempt.ended_at > LAST_LINES_BOUND


def _release_what_is_gone(node: Node, reported: dict[str, ObservedJob], *, now: datetime) -> None:
    """Slots of attempts that were given up: the node answers again and no longer has the job, so it is dead."""
    given_up = Job.objects.filter(
        attempt__node=node, attempt__status=AttemptStatus.ENDED, pk__in=fleet_selectors.leased_jobs(node)
    ).values_list("pk", flat=True)
    gone = [job for job in given_up if job not in reported or reported[job].state == JobState.EXITED]
    if gone:
        with transaction.atomic():
            fleet.release_jobs(gone, now=now)
            fleet.announce_leases()


# --- advancing --------------------------------------------------------------------------------------------


def advance_runs(*, now: datetime) -> None:
    """Bring every run as far as its jobs have come. Runs that somebody else works on are left for the next tick."""
    _each(runs_to_advance(now), lambda run: _advance(run, now=now))


def runs_to_advance(now: datetime) -> list[str]:
    """Runs that a locked look may change. Three queries, however many runs go their quiet way."""
    attempts = {
        attempt.run_id: attempt
        for attempt in Attempt.objects.exclude(status=AttemptStatus.ENDED)
        .select_related("node")
        .prefetch_related("jobs")
    }
    unended = Run.objects.exclude(status__in=[*ENDED, RunStatus.QUEUED]).order_by("pk")
    return [run.pk for run in unended if not _goes_its_way(run, attempts.get(run.pk), now=now)]


def _goes_its_way(run: Run, attempt: Attempt | None, *, now: datetime) -> bool:
    if attempt is None or run.status not in _WORKING or attempt.node.liveness == Liveness.LOST:
        return False
    verdict = judge(run.kind, [_view(job) for job in attempt.jobs.all()])
    ready = isinstance(verdict, Working) and not (verdict.all_running and run.status == RunStatus.STARTING)
    return ready and not _wall_time_over(run, now=now)


def _advance(run: Run, *, now: datetime) -> None:
    if run.has_ended or run.status == RunStatus.QUEUED:
        return
    attempt = live_attempt(run)
    if attempt is None:
        if run.status == RunStatus.RECOVERING:
            _requeue(run, now=now)
        elif run.status == RunStatus.STOPPING:
            move_run(run, RunStatus.STOPPED, now=now)
        elif run.status == RunStatus.FINISHING:
            _finish(run, None, [], now=now)
        return
    jobs = list(attempt.jobs.order_by("pk"))
    match RunStatus(run.status):
        case RunStatus.STARTING | RunStatus.RUNNING:
            _advance_working(run, attempt, jobs, now=now)
        case RunStatus.STOPPING:
            _advance_stopping(run, attempt, jobs, now=now)
        case RunStatus.FINISHING:
            _advance_finishing(run, attempt, jobs, now=now)
        case RunStatus.RECOVERING:
            _advance_recovering(run, attempt, jobs, now=now)


def _advance_working(run: Run, attempt: Attempt, jobs: list[Job], *, now: datetime) -> None:
    verdict = judge(run.kind, [_view(job) for job in jobs])
    if isinstance(verdict, Broken):
        end_attempt(run, attempt, verdict.cause, verdict.message, now=now)
    elif isinstance(verdict, Done):
        move_run(
            run,
            RunStatus.FINISHING,
            now=now,
            message="the work is done; the last lines and checkpoint follow",
        )
        _ask_stop(attempt, now=now)
    elif attempt.node.liveness == Liveness.LOST:
        end_attempt(run, attempt, EndReason.NODE_LOST, f"{attempt.node.name} is lost", now=now)
    elif _wall_time_over(run, now=now):
        _begin_stop(
            run, EndReason.WALL_TIME_OVER,
            f"budget.max_wall_seconds={run.spec['budget']['max_wall_seconds']} is over", now=now,
        )  # fmt: skip
    elif verdict.all_running and run.status == RunStatus.STARTING:
        Attempt.objects.filter(pk=attempt.pk).update(status=AttemptStatus.RUNNING, running_at=now)
        move_run(run, RunStatus.RUNNING, now=now, message=f"every job of attempt {attempt.number} runs")


def _advance_stopping(run: Run, attempt: Attempt, jobs: list[Job], *, now: datetime) -> None:
    trainer = next(job for job in jobs if job.kind == JobKind.TRAINER)
    if trainer.state == JobState.EXITED and now - (trainer.ended_at or now) >= FOLLOW_TRAINER:
        _ask_stop(attempt, now=now)
    silent = attempt.node.liveness != Liveness.READY
    if silent or _is_quiet(attempt, jobs, since=_quiet_since(jobs, run), now=now):
        gap = _gap(jobs)
        end = "with a checkpoint" if newest_stored_checkpoint(run) else "without a checkpoint"
        _close(attempt, EndReason(run.reason), run.reason_message, now=now)
        move_run(run, RunStatus.STOPPED, now=now, message=f"stopped {end}", conditions=["GAP"] if gap else [])
        fleet.announce_leases()


def _advance_finishing(run: Run, attempt: Attempt, jobs: list[Job], *, now: datetime) -> None:
    if attempt.node.liveness == Liveness.LOST and not run.reason and not _final_is_stored(attempt):
        end_attempt(run, attempt, EndReason.NODE_LOST, f"{attempt.node.name} is lost", now=now)
        return
    silent = attempt.node.liveness != Liveness.READY
    if _is_quiet(attempt, jobs, since=_quiet_since(jobs, run), now=now) or (silent and run.reason):
        _finish(run, attempt, jobs, now=now)


def _finish(run: Run, attempt: Attempt | None, jobs: list[Job], *, now: datetime) -> None:
    """Out of FINISHING: with the cause noted before, or COMPLETED."""
    gap = _gap(jobs)
    if not run.reason and attempt is not None and not _final_is_stored(attempt):
        message = "the trainer completed, but no committed checkpoint of it reached the store"
        fields = _verdict(EndReason.NO_VALID_CHECKPOINT, message)
        run.reason = fields["reason"]
    elif not run.reason:
        fields = _verdict(EndReason.COMPLETED, "")
    else:
        fields = {}
    reason = EndReason(fields.get("reason") or run.reason)
    if attempt is not None:
        _close(attempt, reason, run.reason_message, now=now)
    message = f"the last lines of {', '.join(gap)} did not arrive" if gap else OUTCOMES[reason].advice
    move_run(
        run, OUTCOMES[reason].status, now=now, message=message, conditions=["GAP"] if gap else [], **fields
    )
    fleet.announce_leases()


def _advance_recovering(run: Run, attempt: Attempt, jobs: list[Job], *, now: datetime) -> None:
    """The old attempt's jobs end and its newest checkpoint is stored first; a silent node is not waited for."""
    silent = attempt.node.liveness != Liveness.READY
    if silent or _is_quiet(attempt, jobs, since=attempt.ending_at or now, now=now):
        _close(attempt, EndReason(attempt.reason), attempt.message, now=now)
        _requeue(run, now=now)
        fleet.announce_leases()


def _requeue(run: Run, *, now: datetime) -> None:
    """Back to the queue for a new attempt; a failure when the last one committed checkpoints and none can be had."""
    last = run.attempts.order_by("-number").first()
    committed = last is not None and Checkpoint.objects.filter(attempt_id=last.pk).exists()
    if committed and newest_stored_checkpoint(run) is None:
        message = "checkpoints were committed, but none of them reached the store"
        move_run(
            run, RunStatus.FAILED, now=now, message=message,
            **_verdict(EndReason.NO_VALID_CHECKPOINT, message),
        )  # fmt: skip
        return
    lost = run.attempts.count()
    move_run(
        run, RunStatus.QUEUED, now=now, message="waits for slots for a new attempt",
        not_before=now + timedelta(seconds=pause_before_retry(lost)), waiting_why="",
    )  # fmt: skip


# --- ending -----------------------------------------------------------------------------------------------


def end_attempt(run: Run, attempt: Attempt, cause: EndReason, message: str, *, now: datetime) -> None:
    """The attempt is over for this cause; one table says what becomes of the run (contracts.lifecycle.OUTCOMES)."""
    outcome = OUTCOMES[cause]
    lost_before = list(
        run.attempts.filter(status=AttemptStatus.ENDED).exclude(reason="").values_list("reason", flat=True)
    )
    attempt.status, attempt.reason, attempt.message = AttemptStatus.ENDING, cause, message[:4000]
    attempt.ending_at = now
    attempt.save(update_fields=["status", "reason", "message", "ending_at"])
    _ask_stop(attempt, now=now)
    note(
        run, "attempt_ended", f"attempt {attempt.number}: {message}", at=now, attempt_number=attempt.number,
        cause=cause, fault=outcome.fault,
    )  # fmt: skip
    max_attempts = int(run.spec["budget"]["max_attempts"])
    if retry_follows(cause, lost_before=lost_before, max_attempts=max_attempts):
        move_run(
            run, RunStatus.RECOVERING, now=now, message=message, waiting_why=f"recovers: {message}"[:400]
        )
    elif run.status == RunStatus.FINISHING:
        move_run(run, outcome.status, now=now, message=message, **_verdict(cause, message))
    else:
        move_run(run, RunStatus.FINISHING, now=now, message=message, **_verdict(cause, message))


def _verdict(cause: EndReason, message: str) -> dict[str, Any]:
    return {
        "reason": cause,
        "reason_message": message or OUTCOMES[cause].advice,
        "fault": OUTCOMES[cause].fault,
    }


def _close(attempt: Attempt, cause: EndReason, message: str, *, now: datetime) -> None:
    """ENDED: its epoch is fenced from here on. Slots of jobs that are not known dead stay leased."""
    attempt.status, attempt.ended_at = AttemptStatus.ENDED, now
    attempt.reason, attempt.message = attempt.reason or cause, attempt.message or message
    attempt.save(update_fields=["status", "ended_at", "reason", "message"])
    fleet.ring([attempt.node_id])


def _ask_stop(attempt: Attempt, *, now: datetime, kinds: set[JobKind] | None = None) -> None:
    jobs = attempt.jobs.filter(stop_asked_at=None).exclude(state=JobState.EXITED)
    if kinds is not None:
        jobs = jobs.filter(kind__in=kinds)
    if jobs.update(stop_asked_at=now):
        fleet.ring([attempt.node_id])


def _is_quiet(attempt: Attempt, jobs: list[Job], *, since: datetime, now: datetime) -> bool:
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


def _quiet_since(jobs: list[Job], run: Run) -> datetime:
    ends = [job.ended_at for job in jobs if job.ended_at is not None]
    return max([run.status_at, *ends])


def _final_is_stored(attempt: Attempt) -> bool:
    """The newest checkpoint of the attempt is in the store (an attempt that completes commits a final one)."""
    newest = Checkpoint.objects.filter(attempt_id=attempt.pk).order_by("-final", "-step").first()
    return newest is not None and newest.state == CheckpointState.STORED


def _gap(jobs: list[Job]) -> list[str]:
    return [job.name for job in jobs if unread(job)]


def _wall_time_over(run: Run, *, now: datetime) -> bool:
    bound = run.spec["budget"]["max_wall_seconds"]
    return (
        bound is not None and run.started_at is not None and now - run.started_at > timedelta(seconds=bound)
    )


# --- the sweep --------------------------------------------------------------------------------------------


def sweep_leases(*, now: datetime) -> None:
    """Judge the nodes by their silence, and move runs off those that fell silent or are to be emptied."""
    fleet.sweep(now=now)
    troubled = (
        Attempt.objects.exclude(status=AttemptStatus.ENDED)
        .exclude(node__liveness=Liveness.READY, node__intent__in=[Intent.ACTIVE, Intent.CORDONED])
        .values_list("run_id", flat=True)
    )
    conditioned = Run.objects.filter(conditions__contains=["UNRESPONSIVE"], status__in=_WORKING)
    runs = sorted({*troubled, *conditioned.values_list("pk", flat=True)})
    _each(runs, lambda run: _look_after(run, now=now))


def _look_after(run: Run, *, now: datetime) -> None:
    attempt = live_attempt(run)
    if attempt is None or run.status not in _WORKING:
        return
    node = attempt.node
    if node.liveness == Liveness.READY:
        set_conditions(run, [], now=now, message=f"{node.name} answers again")
        if node.intent == Intent.DRAINING and run.status == RunStatus.RUNNING:
            _drain(run, attempt, now=now)
    elif node.liveness == Liveness.LOST:
        end_attempt(run, attempt, EndReason.NODE_LOST, f"{node.name} is lost", now=now)
    elif _fits_elsewhere(run, node, now=now):
        # Nothing is gained by taking the run from a node that may come back, unless another can have it now.
        end_attempt(run, attempt, EndReason.NODE_LOST, f"{node.name} does not answer", now=now)
    else:
        set_conditions(run, ["UNRESPONSIVE"], now=now, message=f"{node.name} does not answer")


def _drain(run: Run, attempt: Attempt, *, now: datetime) -> None:
    if attempt.jobs.filter(kind=JobKind.TRAINER, stop_asked_at=None).exists():
        _ask_stop(attempt, kinds={JobKind.TRAINER}, now=now)
        note(
            run,
            "drain",
            f"{attempt.node.name} is being drained: a checkpoint is taken, then the run moves",
            at=now,
        )


def _fits_elsewhere(run: Run, node: Node, *, now: datetime) -> bool:
    """Whether the run, put into the queue as it is, would be placed at once on another node."""
    decided = plan(
        Snapshot(
            now=now,
            nodes=[view for view in fleet_selectors.node_views() if view.id != node.pk],
            queue=[*map(_request, queue()), _request(run)],
            used=fleet_selectors.used_slots(),
            limits=fleet_selectors.limits(),
        )
    )
    return any(placement.request == run.pk for placement in decided.placements)


# --- checkpoints ------------------------------------------------------------------------------------------


def note_stored(run: Run, checkpoint: Checkpoint, *, now: datetime) -> None:
    """A checkpoint reached the store: tell the run, which is locked."""
    message = f"checkpoint of step {checkpoint.step} stored"
    note(run, "checkpoint_stored", message, at=now, attempt_number=checkpoint.attempt_number)
    live.publish(f"run:{run.pk}", "checkpoint", checkpoint_as_json(checkpoint))
    announce_run(run)
    _advance(run, now=now)


def _each(run_ids: Iterable[str], step: Callable[[Run], None]) -> None:
    """Lock each run that nobody works on and do the step. One run's failure is told at the end, not in the way."""
    failures: list[Exception] = []
    for run_id in run_ids:
        try:
            with transaction.atomic():
                run = lock_run(run_id, skip_locked=True)
                if run is not None:
                    step(run)
        except Exception as failure:
            log.exception("run %s could not be advanced", run_id)
            failures.append(failure)
    if failures:
        raise ExceptionGroup("some runs could not be advanced", failures)


def lock_run(run_id: str, *, skip_locked: bool = False) -> Any:
    """The Run row, locked: the first lock of every transaction that changes a run (see common.live)."""
    rows = Run.objects.select_for_update(of=("self",), skip_locked=skip_locked).select_related(
        "dataset_version__dataset", "base_model", "initial_checkpoint", "created_by", "project__team"
    )
    return rows.filter(pk=run_id).first() if skip_locked else rows.get(pk=run_id)


def _view(job: Job) -> JobView:
    return JobView(
        name=job.name, kind=JobKind(job.kind), state=job.state, reason=job.reason, message=job.message,
        exit_code=job.exit_code, stop_asked=job.stop_asked_at is not None,
    )  # fmt: skip
