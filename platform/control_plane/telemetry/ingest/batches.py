"""Ingest what the jobs of a node wrote: parse each chunk, persist its lines, publish them, acknowledge the offset.

Most chunks only insert rows: one transaction stores all of them. Each of the others gets a transaction of its own
(`outbox`), and each chunk has its own reply.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence, Set

from django.db import transaction

from control_plane.core.api.errors import Problem, not_found, unprocessable
from control_plane.core.infra.isolate_errors import format_internal_error, isolate_errors
from control_plane.fleet.models import Node
from control_plane.runs.models import Attempt, Job, Run
from control_plane.telemetry.ingest import outbox
from control_plane.telemetry.ingest.chunks import LOG_PREFIX, MAX_FILE_NAME_LENGTH, Chunk
from control_plane.telemetry.ingest.lines import parse_lines
from control_plane.telemetry.ingest.lock_contention import REJECTED, busy, reraise_database_error
from control_plane.telemetry.ingest.persist import FreshLines, move_offsets, persist
from control_plane.telemetry.ingest.publish import SINGLE_RUN_LINES, publish
from control_plane.telemetry.models import OutboxFile
from control_plane.telemetry.query import selectors
from oolong.contracts.agent import ChunkReply

log = logging.getLogger(__name__)

MAX_LOG_CHUNK_BYTES = 256 * 1024
BATCH_SECONDS = 10.0  # after them the agent sends the remaining chunks again

FileKey = tuple[str, str]  # job id, file name


def ingest_batch(node: Node, chunks: Sequence[Chunk]) -> list[ChunkReply]:
    """Store the chunks, each as if it had come alone; return the replies in their order.

    Raises OperationalError or InterfaceError when the database itself fails; what was stored until then stays.
    """
    deadline = time.monotonic() + BATCH_SECONDS
    jobs = selectors.jobs_of_node(node, {chunk.job_id for chunk in chunks})
    stored = _ingest_together([chunk for chunk in chunks if chunk.job_id in jobs])
    replies = []
    for chunk in chunks:
        if (offset := stored.get(chunk.file)) is not None:
            reply = ChunkReply(status=200, offset=offset)
        elif time.monotonic() >= deadline:
            reply = _error_reply(busy(f"the chunks before it took {BATCH_SECONDS:g} s"))
        elif chunk.job_id not in jobs:
            reply = _error_reply(not_found("job on this node", chunk.job_id))
        else:
            reply = _ingest_alone(chunk)
        replies.append(reply)
    return replies


# --- many chunks in one transaction -------------------------------------------------------------------------


class _NeedsOwnTransaction(Exception):
    """A chunk needs more than the others. Nothing was stored; each is to be ingested alone."""


def _ingest_together(chunks: Sequence[Chunk]) -> dict[FileKey, int]:
    """Return the offset that each stored file reached; empty if one of the chunks or a lock prevented it."""
    plain = [
        chunk for chunk in chunks if chunk.has_valid_name and not chunk.is_log and not chunk.skipped
    ]  # fmt: skip
    if len(plain) < 2:
        return {}
    with isolate_errors(f"storing {len(plain)} chunks together", reraise_database_error):
        try:
            return _store_together(plain)
        except _NeedsOwnTransaction as reason:
            log.info("%d chunks are stored one by one: %s", len(plain), reason)
    return {}


def _store_together(chunks: Sequence[Chunk]) -> dict[FileKey, int]:
    """Leave to `outbox`: a chunk without a new line, after a gap, with a line that is invalid or concerns more than
    its own run, or of a run that another transaction holds."""
    parsed = {chunk: parse_lines(chunk.body, offset=chunk.offset) for chunk in chunks}
    parsed = {
        chunk: lines
        for chunk, lines in parsed.items()
        if not lines.bad and all(isinstance(one.line, SINGLE_RUN_LINES) for one in lines.good)
    }
    try:
        with transaction.atomic():
            jobs = _lock_jobs_of_free_runs({chunk.job_id for chunk in parsed})
            files = _open_files(jobs, {chunk.file for chunk in parsed if chunk.job_id in jobs})
            batch = [
                FreshLines.of(lines, jobs[chunk.job_id], file)
                for chunk, lines in parsed.items()
                if (file := files.get(chunk.file)) and chunk.offset <= file.offset < lines.end
            ]
            move_offsets(batch)
            if persist(batch):
                raise _NeedsOwnTransaction("a key came again with another value")
            publish(batch)
    except REJECTED as error:
        raise _NeedsOwnTransaction(str(error)) from error
    return {(fresh.job.pk, fresh.file.name): fresh.end for fresh in batch}


def _lock_jobs_of_free_runs(job_ids: Set[str]) -> dict[str, Job]:
    """Lock the runs that no other transaction holds: one that holds several runs must not wait for another."""
    of_jobs = Attempt.objects.filter(jobs__in=job_ids).values("run")
    free = Run.objects.select_for_update(no_key=True, skip_locked=True).defer("spec", "notes")
    locked = {run.pk: run for run in free.filter(pk__in=of_jobs).order_by("pk")}
    attempts: dict[str, Attempt] = {}
    jobs = {}
    for job in Job.objects.filter(pk__in=job_ids, attempt__run__in=locked).select_related("attempt"):
        job.attempt = attempts.setdefault(job.attempt_id, job.attempt)
        job.attempt.run = locked[job.attempt.run_id]
        jobs[job.pk] = job
    return jobs


def _open_files(jobs: dict[str, Job], keys: Set[FileKey]) -> dict[FileKey, OutboxFile]:
    known = OutboxFile.objects.filter(job__in=jobs, name__in={name for _, name in keys})
    files = {key: file for file in known if (key := (file.job_id, file.name)) in keys}
    new = [OutboxFile(job=jobs[job_id], name=name) for job_id, name in sorted(keys - files.keys())]
    return files | {(file.job_id, file.name): file for file in OutboxFile.objects.bulk_create(new)}


# --- one chunk ----------------------------------------------------------------------------------------------


def _ingest_alone(chunk: Chunk) -> ChunkReply:
    reply: ChunkReply | None = None
    failures: list[str] = []

    def failed(error: Exception) -> None:
        reraise_database_error(error)
        failures.append(format_internal_error(error))

    with isolate_errors(f"storing {chunk.name} of job {chunk.job_id}", failed):
        try:
            reply = ChunkReply(status=200, offset=_store_alone(chunk))
        except outbox.OffsetGap as gap:
            reply = ChunkReply(status=409, offset=gap.offset)
        except Problem as problem:
            reply = _error_reply(problem)
    return reply or ChunkReply(status=500, code="internal_error", detail=failures[0])


def _store_alone(chunk: Chunk) -> int:
    if not chunk.has_valid_name:
        raise unprocessable(
            "invalid", f"file={chunk.name[:40]!r}: 1 to {MAX_FILE_NAME_LENGTH} characters without a slash"
        )
    if chunk.skipped:
        return outbox.ingest_skipped_line(
            chunk.job_id, chunk.name, offset=chunk.offset, skipped=chunk.skipped
        )
    if not chunk.is_log:
        return outbox.ingest_outbox(chunk.job_id, chunk.name, offset=chunk.offset, body=chunk.body)
    incarnation = chunk.name.removeprefix(LOG_PREFIX)
    if not (incarnation.isdecimal() and incarnation.isascii() and len(incarnation) < 10):
        raise unprocessable("invalid", f"file={chunk.name!r}: write {LOG_PREFIX}<incarnation>, a number")
    if len(chunk.body) > MAX_LOG_CHUNK_BYTES:
        raise Problem(
            413, "too_large", f"{len(chunk.body)} bytes of a log; ship at most {MAX_LOG_CHUNK_BYTES} at once"
        )
    return outbox.ingest_log(chunk.job_id, int(incarnation), offset=chunk.offset, body=chunk.body)


def _error_reply(problem: Problem) -> ChunkReply:
    return ChunkReply(status=problem.status, code=problem.code, detail=problem.detail)
