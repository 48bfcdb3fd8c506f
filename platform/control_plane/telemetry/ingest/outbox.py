"""Ingest one file of a job: its new bytes become rows and events, exactly once.

An agent ships a file at least once, by offset. One transaction locks the run, drops the lines that were read before,
moves the offset, persists the rest and publishes it. A repeated, overlapping or interrupted chunk therefore changes
nothing, and two chunks of one file take turns. An invalid line is counted and reported among the run's events; the
lines behind it are stored.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db import connection, transaction

from control_plane.core.api.errors import Problem
from control_plane.core.infra import clock, metrics
from control_plane.core.stream import event_stream
from control_plane.runs import telemetry_hooks
from control_plane.runs.models import Job, Run
from control_plane.telemetry.ingest.bulk_insert import Conflict
from control_plane.telemetry.ingest.chunks import LOG_PREFIX
from control_plane.telemetry.ingest.lines import BadLine, ParsedChunk, parse_lines
from control_plane.telemetry.ingest.lock_contention import REJECTED, busy_if_locked
from control_plane.telemetry.ingest.persist import FreshLines, move_offsets, persist
from control_plane.telemetry.ingest.publish import publish
from control_plane.telemetry.logs import log_throttle
from control_plane.telemetry.models import LogChunk, OutboxFile
from oolong.contracts import telemetry as contract
from oolong.contracts.agent import LONGEST_LINE

MAX_REPORTED_BAD_LINES = 20  # per file; further ones are only counted
LOCK_TIMEOUT = "3s"  # for each lock of a single chunk; the agent ships it again
MAX_LOG_EVENT_BYTES = 16 * 1024  # readers fetch longer chunks by offset


class OffsetGap(Exception):
    """The chunk begins beyond what was read. Continue at `offset`."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the file was read to byte {offset}; ship from there")
        self.offset = offset


# --- outbox files -------------------------------------------------------------------------------------------

Stored = tuple[list[Conflict], list[BadLine]]  # keys that came with another value; lines that were rejected


@busy_if_locked()
def ingest_outbox(job_id: str, name: str, *, offset: int, body: bytes) -> int:
    """Store a chunk of an outbox file that begins at byte `offset`; return the offset read so far.

    Raises OffsetGap, Job.DoesNotExist, or Problem: 422 when the new bytes hold no whole line, 503 while another
    transaction holds the run for long.
    """
    parsed = parse_lines(body, offset=offset)
    try:
        return _ingest_lines(job_id, name, offset, len(body), parsed, store=_store)
    except _LineRejected:
        return _ingest_lines(job_id, name, offset, len(body), parsed, store=_store_line_by_line)


class _LineRejected(Exception):
    """The database or a rule of runs rejects one of the lines: store them one by one."""


def _ingest_lines(
    job_id: str,
    name: str,
    offset: int,
    size: int,
    parsed: ParsedChunk,
    *,
    store: Callable[[FreshLines], Stored],
) -> int:
    with transaction.atomic():
        job = _lock_job(job_id)
        file = _open_file(job, name, offset)
        if parsed.end <= file.offset:
            if offset + size > file.offset:
                message = f"{size} bytes of {name} from byte {offset} hold no newline; ship whole lines"
                raise Problem(422, "no_complete_line", message)
            return file.offset
        fresh = FreshLines.of(parsed, job, file)
        move_offsets([fresh])
        conflicts, rejected = store(fresh)
        _report(
            job, file, bad=sorted([*fresh.bad, *rejected], key=lambda line: line.offset), conflicts=conflicts
        )
        return fresh.end


def _store(fresh: FreshLines) -> Stored:
    try:
        conflicts = persist([fresh])
        publish([fresh])
    except REJECTED as error:
        raise _LineRejected from error
    return conflicts, []


def _store_line_by_line(fresh: FreshLines) -> Stored:
    """Store the lines that the database accepts; return the others."""
    conflicts: list[Conflict] = []
    rejected: list[BadLine] = []
    for line in fresh.good:
        single = FreshLines(fresh.job, fresh.file, fresh.start, fresh.end, [line], [])
        try:
            with transaction.atomic():
                conflicts += persist([single])
                publish([single])
        except REJECTED as error:
            _refresh(fresh.job)
            rejected.append(BadLine(line.offset, str(error).partition("\n")[0]))
    return conflicts, rejected


def _refresh(job: Job) -> None:
    """A rejected line has changed the rows in memory only."""
    attempt, run = job.attempt, job.attempt.run
    for row in (run, attempt, job):
        row.refresh_from_db()
    job.attempt, attempt.run = attempt, run


@busy_if_locked()
def ingest_skipped_line(job_id: str, name: str, *, offset: int, skipped: int) -> int:
    """Count and report a line of an outbox file that was too long to ship; return the offset read so far.

    Raises OffsetGap, Job.DoesNotExist, or Problem 503 while another transaction holds the run for long.
    """
    with transaction.atomic():
        job = _lock_job(job_id)
        file = _open_file(job, name, offset)
        end = offset + skipped
        if end <= file.offset:
            return file.offset
        reason = f"it has {skipped} bytes, and a line at most {LONGEST_LINE}; it was not shipped"
        line = BadLine(file.offset, reason)
        move_offsets([FreshLines(job, file, end, end, [], [line])])  # none of its bytes came
        _report(job, file, bad=[line], conflicts=[])
        return end


# --- logs ---------------------------------------------------------------------------------------------------


@busy_if_locked()
def ingest_log(job_id: str, incarnation: int, *, offset: int, body: bytes) -> int:
    """Store a chunk of a job's log that begins at byte `offset`; return the offset read so far.

    Raises OffsetGap, Job.DoesNotExist, or Problem 503 while another transaction holds the run for long.
    """
    name = log_file_name(incarnation)
    with transaction.atomic():
        job = _lock_job(job_id)
        file = _open_file(job, name, offset)
        fresh = body[file.offset - offset :]
        if not fresh:
            return file.offset
        start = file.size
        data = _throttle(file, fresh)
        file.offset += len(fresh)
        file.save()
        telemetry_hooks.record_read_offsets([(job, name, file.offset)])
        transaction.on_commit(lambda: metrics.INGEST_BYTES.labels("log").inc(len(fresh)))
        if data:
            LogChunk.objects.create(job=job, incarnation=incarnation, offset=start, data=data, at=clock.now())
            event = {
                "job": job.pk,
                "name": job.name,
                "incarnation": incarnation,
                "offset": start,
                "next_offset": start + len(data),
                "text": data.decode(errors="replace") if len(data) <= MAX_LOG_EVENT_BYTES else None,
            }
            event_stream.publish(f"run:{job.attempt.run_id}:logs", "log", event)
        return file.offset


def log_file_name(incarnation: int) -> str:
    return f"{LOG_PREFIX}{incarnation}"


def _throttle(file: OutboxFile, fresh: bytes) -> bytes:
    """The part of `fresh` that is stored. Updates the file's counters."""
    bucket = None
    if file.allowance is not None and file.allowance_at is not None:
        bucket = log_throttle.TokenBucket(file.allowance, file.allowance_at)
    admission = log_throttle.admit(fresh, bucket=bucket, dropped=file.dropping, now=clock.now())
    if admission.data != fresh:
        file.kept = file.size
    if file.kept is not None:
        file.kept += len(admission.data)
    file.dropped += max(0, admission.dropped - file.dropping)
    file.dropping = admission.dropped
    file.allowance, file.allowance_at = admission.bucket.bytes, admission.bucket.at
    return admission.data


# --- rows ---------------------------------------------------------------------------------------------------


def _lock_job(job_id: str) -> Job:
    """Lock the run, then the job: chunks of one run take turns here. Every transaction locks the run first, because
    whoever holds it may be about to change the job."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_TIMEOUT])
    # Without the spec: it is long, and hardly any line needs it.
    run = Run.objects.select_for_update(no_key=True).defer("spec", "notes").get(attempts__jobs=job_id)
    job = Job.objects.select_for_update(of=("self",), no_key=True).select_related("attempt").get(pk=job_id)
    job.attempt.run = run
    return job


def _open_file(job: Job, name: str, offset: int) -> OutboxFile:
    """Raises OffsetGap when the chunk begins beyond what was read."""
    file, _ = OutboxFile.objects.get_or_create(job=job, name=name)
    if offset > file.offset:
        raise OffsetGap(file.offset)
    return file


def _report(job: Job, file: OutboxFile, *, bad: list[BadLine], conflicts: list[Conflict]) -> None:
    """Count bad lines and conflicts. The first bad lines and the first conflict of a file are run events."""
    if not bad and not conflicts:
        return
    remaining = max(0, MAX_REPORTED_BAD_LINES - file.bad_lines)
    for line in bad[:remaining]:
        _note(job, "bad_outbox_line", f"{file.name}, line at byte {line.offset}: {line.reason}"[:2000])
    if remaining and len(bad) > remaining:
        _note(job, "bad_outbox_line", f"{file.name} has more such lines; they are counted and not listed")
    if conflicts and not file.conflicts:
        first = conflicts[0]
        _note(
            job,
            "metric_conflict",
            f"{first.key} was written again with another value ({first.incoming} after {first.stored}); "
            "the first one stays and the conflict is counted",
        )
    file.bad_lines += len(bad)
    file.conflicts += len(conflicts)
    file.save(update_fields=["bad_lines", "conflicts"])


def _note(job: Job, kind: str, message: str) -> None:
    telemetry_hooks.record_note(job, contract.Note(at=clock.now().timestamp(), kind=kind, message=message))
