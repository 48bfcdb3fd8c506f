"""What the jobs of a node wrote since it last looked, in one body: the many pieces in which nothing is out of the
ordinary are stored by one transaction, each of the others by one of its own. Each piece has an answer of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from django.db import connection, transaction

from control_plane.core.api.errors import Problem, not_found, unprocessable
from control_plane.core.api.query_params import refused
from control_plane.core.infra.isolate_errors import apart, unforeseen
from control_plane.fleet.models import Node
from control_plane.runs import telemetry_hooks as runs
from control_plane.runs.models import Attempt, Job, Run
from control_plane.telemetry.ingest import outbox
from control_plane.telemetry.ingest.lines import ReadLine, read_lines
from control_plane.telemetry.ingest.lock_contention import REFUSED, busy, raise_if_of_all
from control_plane.telemetry.ingest.persist import OF_ONE_RUN, Taken, store
from control_plane.telemetry.models import OutboxFile
from control_plane.telemetry.query import selectors
from oolong.contracts.agent import BATCH_CHUNKS, BATCH_HEAD_BYTES, ChunkReply, TelemetryBatchHead

log = logging.getLogger(__name__)

LOG_BYTES = 256 * 1024
LOG_PREFIX = "output.log#"
LONGEST_FILE_NAME = 120
SECONDS_OF_SHIPMENT = 10.0  # after them the pieces that are left are to come again
_SAVE_OFFSETS = """
UPDATE telemetry_outboxfile AS file SET "offset" = new.reached, lines = new.lines
FROM unnest(%(ids)s::bigint[], %(offsets)s::bigint[], %(lines)s::bigint[]) AS new(id, reached, lines)
WHERE file.id = new.id
"""


@dataclass(frozen=True)
class Piece:
    """Bytes of a file that begin at byte `offset`."""

    job_id: str
    name: str  # "output.log#<incarnation>" for a log, otherwise an outbox file's
    offset: int
    body: bytes
    skipped: int = 0  # length of a line that was too long to ship, in place of a body

    @property
    def is_log(self) -> bool:
        return self.name.startswith(LOG_PREFIX)

    @property
    def is_named_well(self) -> bool:
        return 0 < len(self.name) <= LONGEST_FILE_NAME and "/" not in self.name


def read_shipment(body: bytes) -> list[Piece]:
    """Take a body apart (see contracts.agent.TelemetryBatchHead). Raises Problem 422."""
    line, newline, _ = body[: BATCH_HEAD_BYTES + 1].partition(b"\n")
    if not newline:
        raise refused(
            "pieces", f"no newline in the first {len(line)} bytes; the body begins with a line of JSON"
        )
    try:
        asked = msgspec.json.decode(line, type=TelemetryBatchHead).pieces
    except msgspec.DecodeError as error:
        raise refused("pieces", f"the first line is no TelemetryBatchHead: {error}") from error
    if len(asked) > BATCH_CHUNKS:
        raise refused("pieces", f"{len(asked)} pieces; send at most {BATCH_CHUNKS} at once")
    pieces: list[Piece] = []
    begin = len(line) + 1
    for n, one in enumerate(asked):
        if min(one.offset, one.bytes, one.skipped) < 0 or "\0" in one.job_id + one.file:
            raise refused(f"pieces/{n}", f"{one}: no number is negative, and names have no NUL")
        if one.skipped and (
            one.bytes or one.file.startswith(LOG_PREFIX) or one.offset + one.skipped >= 2**63
        ):
            raise refused(
                f"pieces/{n}", f"{one}: skipped stands for one line of an outbox, in place of bytes"
            )
        pieces.append(Piece(one.job_id, one.file, one.offset, body[begin : begin + one.bytes], one.skipped))
        begin += one.bytes
    if begin != len(body):
        told = sum(one.bytes for one in asked)
        raise refused(
            "pieces", f"the pieces have {told} bytes, and {len(body) - len(line) - 1} follow the first line"
        )
    if len({(piece.job_id, piece.name) for piece in pieces}) < len(pieces):
        raise refused("pieces", "two pieces of the same file; send what follows with the next shipment")
    return pieces


def receive_shipment(node: Node, pieces: Sequence[Piece]) -> list[ChunkReply]:
    """Store the pieces, each as if it had come alone: the answers, in their order.

    Raises OperationalError or InterfaceError where the database is what fails; what was stored by then stays.
    """
    until = time.monotonic() + SECONDS_OF_SHIPMENT
    mine = selectors.jobs_of_node(node, {piece.job_id for piece in pieces})
    ordinary = [
        n
        for n, piece in enumerate(pieces)
        if piece.job_id in mine and piece.is_named_well and not piece.is_log and not piece.skipped
    ]
    replies: dict[int, ChunkReply] = {}
    if len(ordinary) > 1:
        for n, offset in _receive_many([pieces[n] for n in ordinary]).items():
            replies[ordinary[n]] = ChunkReply(status=200, offset=offset)
    for n, piece in enumerate(pieces):
        if n in replies:
            continue
        if time.monotonic() >= until:
            replies[n] = _refusal(busy(f"the pieces before it took {SECONDS_OF_SHIPMENT:g} s"))
        else:
            replies[n] = _receive_alone(piece, is_mine=piece.job_id in mine)
    return [replies[n] for n in range(len(pieces))]


def _receive_many(pieces: Sequence[Piece]) -> dict[int, int]:
    """What could be stored together; nothing of it where that failed, because of one of them or of a lock."""
    with apart(f"storing {len(pieces)} pieces together", raise_if_of_all):
        try:
            return _receive_together(pieces)
        except _NotTogether as why:
            log.info("%d pieces are stored one by one: %s", len(pieces), why)
    return {}


def _receive_alone(piece: Piece, *, is_mine: bool) -> ChunkReply:
    reply: ChunkReply | None = None
    failures: list[str] = []

    def failed(error: Exception) -> None:
        raise_if_of_all(error)
        failures.append(unforeseen(error))

    with apart(f"storing {piece.name} of job {piece.job_id}", failed):
        reply = _answer(piece) if is_mine else _refusal(not_found("job on this node", piece.job_id))
    return reply or ChunkReply(status=500, code="internal_error", detail=failures[0])


def _answer(piece: Piece) -> ChunkReply:
    try:
        return ChunkReply(status=200, offset=_store_alone(piece))
    except outbox.OffsetGap as gap:
        return ChunkReply(status=409, offset=gap.offset)
    except Problem as problem:
        return _refusal(problem)


def _refusal(problem: Problem) -> ChunkReply:
    return ChunkReply(status=problem.status, code=problem.code, detail=problem.detail)


def _store_alone(piece: Piece) -> int:
    if not piece.is_named_well:
        raise unprocessable(
            "invalid", f"file={piece.name[:40]!r}: 1 to {LONGEST_FILE_NAME} characters without a slash"
        )
    if piece.skipped:
        return outbox.receive_skipped(piece.job_id, piece.name, offset=piece.offset, skipped=piece.skipped)
    if not piece.is_log:
        return outbox.receive_outbox(piece.job_id, piece.name, offset=piece.offset, body=piece.body)
    incarnation = piece.name.removeprefix(LOG_PREFIX)
    if not (incarnation.isdecimal() and incarnation.isascii() and len(incarnation) < 10):
        raise unprocessable(
            "invalid", f"file={piece.name!r}: after {LOG_PREFIX} comes the incarnation, a number"
        )
    if len(piece.body) > LOG_BYTES:
        raise Problem(413, "too_large", f"{len(piece.body)} bytes of a log; ship at most {LOG_BYTES} at once")
    return outbox.receive_log(piece.job_id, int(incarnation), offset=piece.offset, body=piece.body)


class _NotTogether(Exception):
    """One of the pieces needs more than the others; nothing was stored. Each is to be received by itself."""


def _receive_together(pieces: Sequence[Piece]) -> dict[int, int]:
    """Store pieces of different files in one transaction; returns the offset that each reached, by its position.

    Left out is what `receive_outbox` is for: a piece without a new line, behind a gap, with a line that cannot be
    understood or concerns more than its own run, or of a run that somebody else holds. Raises _NotTogether.
    """
    reading = {n: read for n, piece in enumerate(pieces) if (read := _read_ordinary(piece))}
    try:
        with transaction.atomic():
            jobs = _jobs_of_free_runs({pieces[n].job_id for n in reading})
            files = _files(jobs, [pieces[n] for n in reading])
            taken: list[tuple[OutboxFile, Taken]] = []
            reached: dict[int, int] = {}
            stored_bytes = 0
            for n, (end, lines) in reading.items():
                piece = pieces[n]
                file = files.get((piece.job_id, piece.name))
                if file is None or not piece.offset <= file.offset < end:
                    continue
                fresh = [read for read in lines if read.offset >= file.offset]
                stored_bytes += end - file.offset
                file.offset, file.lines = end, file.lines + len(fresh)
                reached[n] = end
                taken.append((file, Taken(jobs[piece.job_id], file.name, fresh)))
            _save_offsets([file for file, _ in taken])
            runs.record_read_offsets((one.job, one.file, file.offset) for file, one in taken)
            if store([one for _, one in taken]):
                raise _NotTogether("the same key came with another value")
            transaction.on_commit(lambda: outbox.count(stored_bytes, sum(len(one.lines) for _, one in taken)))
    except REFUSED as error:
        raise _NotTogether(str(error)) from error
    return reached


def _read_ordinary(piece: Piece) -> tuple[int, list[ReadLine]] | None:
    """Where the last whole line ends, and the lines; None where one of them is out of the ordinary."""
    whole = piece.body[: piece.body.rfind(b"\n") + 1]
    reading = read_lines(whole, offset=piece.offset)
    if reading.bad or not all(isinstance(read.line, OF_ONE_RUN) for read in reading.good):
        return None
    return piece.offset + len(whole), reading.good


def _jobs_of_free_runs(job_ids: set[str]) -> dict[str, Job]:
    """Jobs whose runs nobody holds: these are locked. Who holds several runs must not wait for a further one."""
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


def _files(jobs: Mapping[str, Job], pieces: Sequence[Piece]) -> dict[tuple[str, str], OutboxFile]:
    wanted = {(piece.job_id, piece.name) for piece in pieces if piece.job_id in jobs}
    names = {name for _, name in wanted}
    found = OutboxFile.objects.filter(job__in=jobs, name__in=names)
    files = {key: file for file in found if (key := (file.job_id, file.name)) in wanted}
    new = [OutboxFile(job=jobs[job_id], name=name) for job_id, name in sorted(wanted - files.keys())]
    return files | {(file.job_id, file.name): file for file in OutboxFile.objects.bulk_create(new)}


def _save_offsets(files: Sequence[OutboxFile]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            _SAVE_OFFSETS,
            {
                "ids": [file.pk for file in files],
                "offsets": [file.offset for file in files],
                "lines": [file.lines for file in files],
            },
        )
