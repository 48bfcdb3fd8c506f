"""Every write of telemetry: shipped bytes become rows and frames, exactly once.

An agent ships a file at least once, by offset. One transaction takes the file's row, leaves out what was read
before, stores the rest, publishes it and moves the offset: so a repeated, overlapping or interrupted shipment
changes nothing, and two shippers of one file take turns. A line that cannot be understood is counted and noted
among the run's events; it never holds up the lines behind it.

What all jobs of a node wrote comes as one shipment: see `shipments`.
"""

from __future__ import annotations

from django.db import connection, transaction

from control_plane.core.api.errors import Problem
from control_plane.core.infra import clock, metrics
from control_plane.core.stream import event_stream
from control_plane.runs import telemetry_hooks as runs
from control_plane.runs.models import Job, Run
from control_plane.telemetry.ingest import bulk_insert
from control_plane.telemetry.ingest.lines import BadLine, ReadLine, read_lines
from control_plane.telemetry.ingest.lock_contention import REFUSED, busy_while_held
from control_plane.telemetry.ingest.persist import Taken, store
from control_plane.telemetry.logs import log_throttle
from control_plane.telemetry.models import LogChunk, OutboxFile
from oolong.contracts import telemetry as contract
from oolong.contracts.agent import LONGEST_LINE

NOTED_BAD_LINES = 20  # per file; further ones are only counted
LOCK_TIMEOUT = "3s"  # of who stores one piece, for each lock; an agent asks again
LOG_TEXT_IN_FRAME = 16 * 1024  # bytes; readers fetch bigger pieces by offset


class OffsetGap(Exception):
    """The shipment begins beyond what was read. `offset` is where to go on from."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the file was read to byte {offset}; ship from there")
        self.offset = offset


@busy_while_held()
def receive_outbox(job_id: str, name: str, *, offset: int, body: bytes) -> int:
    """Store a piece of an outbox file that begins at byte `offset`; returns the offset read so far.

    Raises OffsetGap, Job.DoesNotExist, or Problem: 422 when there is no whole line in what is new, 503 while somebody
    else holds the run for long.
    """
    try:
        return _receive_outbox(job_id, name, offset=offset, body=body, together=True)
    except _LineRefused:
        return _receive_outbox(job_id, name, offset=offset, body=body, together=False)


class _LineRefused(Exception):
    """The database or a rule of runs refuses one of the lines: they are to be stored one by one."""


def _receive_outbox(job_id: str, name: str, *, offset: int, body: bytes, together: bool) -> int:
    whole = body[: body.rfind(b"\n") + 1]
    reading = read_lines(whole, offset=offset)
    with transaction.atomic():
        job = _locked_job(job_id)
        file = _file(job, name, offset)
        end = offset + len(whole)
        if end <= file.offset:
            if offset + len(body) > file.offset:
                raise Problem(
                    422,
                    "no_complete_line",
                    f"{len(body)} bytes of {name} from byte {offset} hold no newline; ship whole lines",
                )
            return file.offset
        good = [read for read in reading.good if read.offset >= file.offset]
        bad = [line for line in reading.bad if line.offset >= file.offset]
        # Before the lines: they publish, and a topic that all runs of a project share stays locked until the commit.
        start, file.offset = file.offset, end
        file.lines += len(good) + len(bad)
        file.save(update_fields=["offset", "lines"])
        runs.record_read_offsets([(job, name, end)])
        fresh_bytes, fresh_lines = end - start, len(good) + len(bad)
        conflicts, refused = _store_together(job, file, good) if together else _store_singly(job, file, good)
        bad = sorted([*bad, *refused], key=lambda line: line.offset)
        if bad or conflicts:
            _note_bad_lines(job, file, bad)
            _note_conflict(job, file, conflicts)
            file.bad_lines += len(bad)
            file.conflicts += len(conflicts)
            file.save(update_fields=["bad_lines", "conflicts"])
        transaction.on_commit(lambda: count(fresh_bytes, fresh_lines))
        return end


@busy_while_held()
def receive_skipped(job_id: str, name: str, *, offset: int, skipped: int) -> int:
    """Count and note a line of an outbox file that was too long for its agent to ship; returns the offset read so far.

    Raises OffsetGap, Job.DoesNotExist, or Problem 503 while somebody else holds the run for long.
    """
    with transaction.atomic():
        job = _locked_job(job_id)
        file = _file(job, name, offset)
        end = offset + skipped
        if end <= file.offset:
            return file.offset
        line = BadLine(
            file.offset, f"it has {skipped} bytes, and a line at most {LONGEST_LINE}; it was not shipped"
        )
        _note_bad_lines(job, file, [line])
        file.offset, file.lines, file.bad_lines = end, file.lines + 1, file.bad_lines + 1
        file.save(update_fields=["offset", "lines", "bad_lines"])
        runs.record_read_offsets([(job, name, end)])
        transaction.on_commit(lambda: count(0, 1))
        return end


@busy_while_held()
def receive_log(job_id: str, incarnation: int, *, offset: int, body: bytes) -> int:
    """Store a piece of a job's log that begins at byte `offset`; returns the offset read so far.

    Raises OffsetGap, Job.DoesNotExist, or Problem 503 while somebody else holds the run for long.
    """
    name = log_file_name(incarnation)
    with transaction.atomic():
        job = _locked_job(job_id)
        file = _file(job, name, offset)
        start = file.offset
        fresh = body[start - offset :]
        if not fresh:
            return start
        begin = file.size
        data = _within_budget(file, fresh)
        file.offset = start + len(fresh)
        file.save()
        runs.record_read_offsets([(job, name, file.offset)])
        transaction.on_commit(lambda: metrics.INGEST_BYTES.labels("log").inc(len(fresh)))
        if not data:
            return file.offset
        LogChunk.objects.create(job=job, incarnation=incarnation, offset=begin, data=data, at=clock.now())
        frame = {
            "job": job.pk,
            "name": job.name,
            "incarnation": incarnation,
            "offset": begin,
            "next_offset": begin + len(data),
            "text": data.decode(errors="replace") if len(data) <= LOG_TEXT_IN_FRAME else None,
        }
        event_stream.publish(f"run:{job.attempt.run_id}:logs", "log", frame)
        return file.offset


def count(stored_bytes: int, lines: int) -> None:
    metrics.INGEST_BYTES.labels("outbox").inc(stored_bytes)
    metrics.INGEST_LINES.inc(lines)


def _within_budget(file: OutboxFile, fresh: bytes) -> bytes:
    """What of a piece of output is kept; the file's row is told."""
    known = file.allowance is not None and file.allowance_at is not None
    allowance = (
        log_throttle.Allowance(file.allowance or 0, file.allowance_at or clock.now()) if known else None
    )
    kept = log_throttle.keep(fresh, allowance=allowance, dropped=file.dropping, now=clock.now())
    if kept.data != fresh:
        file.kept = file.size
    if file.kept is not None:
        file.kept += len(kept.data)
    file.dropped += max(0, kept.dropped - file.dropping)
    file.dropping = kept.dropped
    file.allowance, file.allowance_at = kept.allowance.bytes, kept.allowance.at
    return kept.data


def log_file_name(incarnation: int) -> str:
    return f"output.log#{incarnation}"


# --- one shipment -----------------------------------------------------------------------------------------


def _locked_job(job_id: str) -> Job:
    """The job and its run, both rows locked: shippers of one run take turns here. The run comes first, as
    everywhere, because who has locked the run may be about to change the job."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_TIMEOUT])
    # Without the spec: it is long, and hardly any line needs it.
    run = Run.objects.select_for_update(no_key=True).defer("spec", "notes").get(attempts__jobs=job_id)
    job = Job.objects.select_for_update(of=("self",), no_key=True).select_related("attempt").get(pk=job_id)
    job.attempt.run = run
    return job


def _file(job: Job, name: str, offset: int) -> OutboxFile:
    """How far the file was read. Raises OffsetGap when the shipment begins beyond that."""
    file, _ = OutboxFile.objects.get_or_create(job=job, name=name)
    if offset > file.offset:
        raise OffsetGap(file.offset)
    return file


Stored = tuple[list[bulk_insert.Conflict], list[BadLine]]


def _store_together(job: Job, file: OutboxFile, lines: list[ReadLine]) -> Stored:
    try:
        return store([Taken(job, file.name, lines)]), []
    except REFUSED as error:
        raise _LineRefused from error


def _store_singly(job: Job, file: OutboxFile, lines: list[ReadLine]) -> Stored:
    """Line by line, to find those that are refused."""
    conflicts: list[bulk_insert.Conflict] = []
    refused: list[BadLine] = []
    for line in lines:
        try:
            with transaction.atomic():
                conflicts += store([Taken(job, file.name, [line])])
        except REFUSED as error:
            _read_again(job)
            refused.append(BadLine(line.offset, str(error).partition("\n")[0]))
    return conflicts, refused


def _read_again(job: Job) -> None:
    """What a refused line changed in memory was not stored."""
    attempt, run = job.attempt, job.attempt.run
    for row in (run, attempt, job):
        row.refresh_from_db()
    job.attempt, attempt.run = attempt, run


def _note_bad_lines(job: Job, file: OutboxFile, bad: list[BadLine]) -> None:
    room = max(0, NOTED_BAD_LINES - file.bad_lines)
    for line in bad[:room]:
        _note(job, "bad_outbox_line", f"{file.name}, line at byte {line.offset}: {line.reason}"[:2000])
    if room and len(bad) > room:
        _note(job, "bad_outbox_line", f"{file.name} has more such lines; they are counted and not listed")


def _note_conflict(job: Job, file: OutboxFile, conflicts: list[bulk_insert.Conflict]) -> None:
    """One event per file is enough; the counts go on."""
    if conflicts and not file.conflicts:
        first = conflicts[0]
        _note(
            job,
            "metric_conflict",
            f"{first.key} was written again with another value ({first.refused} after {first.kept}); "
            "the first one is kept and the conflict counted",
        )


def _note(job: Job, kind: str, message: str) -> None:
    runs.record_note(job, contract.Note(at=clock.now().timestamp(), kind=kind, message=message))
