"""Find lines in the logs of a run: by text or regular expression, level, job and time, within limits."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple

from django.db import DataError, OperationalError, connection, transaction
from django.db.models import Q

from control_plane.core.api.errors import FieldError, unprocessable
from control_plane.core.infra import clock
from control_plane.runs.models import Run
from control_plane.telemetry.models import LogChunk

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LEVEL = re.compile(
    r"\b(DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b|^Traceback \(most recent|^\w+(?:Error|Exception):"
)
_SYNONYMS = {"WARN": "WARNING", "FATAL": "CRITICAL"}
LEVEL_SEARCH_LENGTH = 200  # characters of a line in which its level is looked for

MAX_SCANNED_BYTES = 64 * 1024 * 1024  # bytes of logs that one request searches
MAX_SCANNED_LINES = 50_000  # that one request searches, however short they are
REGEX_MILLISECONDS = 2000  # of the database, for one request's patterns
MAX_PATTERN_LENGTH = 500
MAX_LINE_LENGTH = 4000  # characters of a line that are shown and searched
BATCH = 2 * 1024 * 1024
CHUNKS_BACK = 256


@dataclass(frozen=True, kw_only=True)
class Search:
    text: str = ""
    regex: bool = False
    level: str = ""  # this one and worse
    job: str = ""  # name or id
    since: datetime | None = None  # of the moment when the server got the piece
    until: datetime | None = None
    limit: int = 200
    after: tuple[int, int] | None = None  # chunk, byte within it: go on behind


class LogLine(NamedTuple):
    """A line and where it begins: `offset` in the job's log, `within` in its chunk. Cheap to make; the rest is read
    when the line is shown."""

    chunk: LogChunk
    offset: int
    within: int
    text: str

    @property
    def level(self) -> str:
        return level_of(self.text)

    def as_json(self) -> dict[str, Any]:
        chunk = self.chunk
        return {
            "job": chunk.job_id, "name": chunk.job.name, "attempt": chunk.job.attempt.number,
            "incarnation": chunk.incarnation, "offset": self.offset,
            "at": clock.rfc3339(chunk.at) if chunk.at else None, "level": self.level or None, "text": self.text,
        }  # fmt: skip


def search(run: Run, wanted: Search) -> dict[str, Any]:
    """Return one page of matching lines in the order in which the server received them.

    With `has_more`, continue at `next_cursor`: the page is full, or the request reached a limit of bytes, lines or
    time.
    """
    # Closed here: an abandoned reader leaves its server-side cursor open until the garbage collector finds it, and
    # the collector then closes it within somebody else's transaction.
    with closing(_chunks(run, wanted)) as chunks, closing(lines_of(chunks, wanted)) as lines:
        return search_lines(lines, wanted)


def search_lines(lines: Iterator[LogLine], wanted: Search) -> dict[str, Any]:
    found: list[LogLine] = []
    scanned = count = 0
    last: LogLine | None = None
    budget = RegexBudget(REGEX_MILLISECONDS)
    for batch in _batches(lines):
        try:
            hits = matching(batch, wanted, budget)
        except _RegexTimeout as slow:
            if last is None:
                raise _invalid_pattern(
                    "too_slow",
                    f"q={wanted.text!r} took longer than {REGEX_MILLISECONDS / 1000:g} s; make it simpler, or name "
                    "a job or a time",
                ) from slow
            return _page(found, last, scanned, has_more=True)
        for line in hits:
            found.append(line)
            if len(found) == wanted.limit:
                return _page(found, line, scanned, has_more=True)
        last = batch[-1]
        scanned += sum(len(line.text) + 1 for line in batch)
        count += len(batch)
        if scanned >= MAX_SCANNED_BYTES or count >= MAX_SCANNED_LINES:
            return _page(found, last, scanned, has_more=True)
    return _page(found, last, scanned, has_more=False)


def _page(found: list[LogLine], last: LogLine | None, scanned: int, *, has_more: bool) -> dict[str, Any]:
    return {
        "data": [line.as_json() for line in found],
        "scanned_bytes": scanned,
        "next_cursor": f"{last.chunk.pk}.{last.within}" if has_more and last else None,
        "has_more": has_more,
    }


def _chunks(run: Run, wanted: Search) -> Generator[LogChunk]:
    chunks = LogChunk.objects.filter(job__attempt__run=run).select_related("job__attempt").order_by("pk")
    if wanted.job:
        chunks = chunks.filter(Q(job_id=wanted.job) | Q(job__name=wanted.job))
    if wanted.since:
        chunks = chunks.filter(at__gte=wanted.since)
    if wanted.until:
        chunks = chunks.filter(at__lte=wanted.until)
    if wanted.after:
        # From a little before, because the line behind the cursor may begin there.
        chunks = chunks.filter(pk__gte=wanted.after[0] - CHUNKS_BACK)
    yield from chunks.iterator(chunk_size=32)


def lines_of(chunks: Iterable[LogChunk], wanted: Search) -> Generator[LogLine]:
    """Lines of chunks. One that a piece cuts in two is put together with the piece behind it."""
    unfinished: dict[tuple[str, int], LogChunk] = {}
    begun: dict[tuple[str, int], bytes] = {}
    for chunk in chunks:
        key = (chunk.job_id, chunk.incarnation)
        before = begun.pop(key, b"")
        data = before + bytes(chunk.data)
        offset, within = chunk.offset - len(before), -len(before)
        *whole, rest = data.split(b"\n")
        pk = chunk.pk
        for text in whole:
            if wanted.after is None or (pk, within) > wanted.after:
                yield _line(chunk, offset, within, text)
            offset += len(text) + 1
            within += len(text) + 1
        if len(rest) > MAX_LINE_LENGTH * 4:
            if wanted.after is None or (chunk.pk, within) > wanted.after:
                yield _line(chunk, offset, within, rest)
        elif rest:
            unfinished[key], begun[key] = chunk, rest
    for key, rest in begun.items():
        chunk = unfinished[key]
        within = len(chunk.data) - len(rest)
        if wanted.after is None or (chunk.pk, within) > wanted.after:
            yield _line(chunk, chunk.offset + within, within, rest)


def _line(chunk: LogChunk, offset: int, within: int, data: bytes) -> LogLine:
    text = (
        data[: MAX_LINE_LENGTH * 4]
        .decode(errors="replace")
        .rstrip("\r")[:MAX_LINE_LENGTH]
        .replace("\x00", "\ufffd")
    )
    return LogLine(chunk, offset, within, text)


def level_of(text: str) -> str:
    """The level a line says it has; a traceback is an error. Empty when it says none."""
    found = _LEVEL.search(text[:LEVEL_SEARCH_LENGTH])
    if found is None:
        return ""
    return _SYNONYMS.get(found[1], found[1]) if found[1] else "ERROR"


def _batches(lines: Iterator[LogLine]) -> Iterator[list[LogLine]]:
    batch: list[LogLine] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line.text) + 100
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@dataclass
class RegexBudget:
    """Of one request: what its batches may still take of the database."""

    milliseconds: float


class _RegexTimeout(Exception):
    """The budget is used up, and the batch was not searched."""


def matching(lines: list[LogLine], wanted: Search, budget: RegexBudget) -> list[LogLine]:
    if wanted.level:
        worse = LEVELS[LEVELS.index(wanted.level) :]
        lines = [line for line in lines if line.level in worse]
    if not wanted.text or not lines:
        return lines
    if not wanted.regex:
        text = wanted.text.lower()
        return [line for line in lines if text in line.text.lower()]
    if budget.milliseconds < 1:  # to the database, 0 is no limit
        raise _RegexTimeout
    # By the database: unlike Python, it can stop a pattern that takes forever.
    began = monotonic()
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT set_config('statement_timeout', %s, true)", [str(int(budget.milliseconds))]
            )
            cursor.execute(
                "SELECT n FROM unnest(%s::text[]) WITH ORDINALITY AS line(text, n) WHERE text ~* %s ORDER BY n",
                ([line.text for line in lines], wanted.text),
            )
            matching = [lines[n - 1] for (n,) in cursor.fetchall()]
    except DataError as error:
        raise _invalid_pattern("invalid", f"q={wanted.text!r} is no regular expression: {error}") from error
    except OperationalError as error:
        if "statement timeout" not in str(error):
            raise
        raise _RegexTimeout from error
    budget.milliseconds -= (monotonic() - began) * 1000
    return matching


def _invalid_pattern(code: str, message: str) -> Exception:
    message = message.partition("\nCONTEXT")[0].strip()
    return unprocessable("invalid", message, [FieldError("/q", code, message)])
