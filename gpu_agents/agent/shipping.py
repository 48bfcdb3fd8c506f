"""Ship outbox lines and logs to the control plane: by offset, in order, at least once.

One request carries chunks of many files, because a request costs the server far more than a line; each chunk has its
own reply. The server owns the offsets: it stores a chunk and its new offset in one transaction, and replies 409 with
its offset if a chunk starts elsewhere. So the agent keeps no offsets on disk: after a restart it starts at 0, and the
server's reply tells where to resume.

Logs are shipped in separate requests, so that metrics do not wait for the slower storage of logs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gpu_agents.agent.api import AgentApi, ApiError, ServerUnavailable
from gpu_agents.agent.job_files import GrowingFile, log_file, outbox_files, skip_line, whole_lines
from gpu_agents.agent.records import JobRecord
from gpu_agents.agent.settings import DataDirectory
from gpu_agents.agent.untrusted import Untrusted
from oolong.contracts.agent import (
    BATCH_BYTES,
    BATCH_CHUNKS,
    LONGEST_LINE,
    ChunkReply,
    OutboxOffset,
    TelemetryBatchHead,
    TelemetryChunk,
)
from oolong.contracts.attempt import LOG_FILE
from oolong.system.backoff import Backoff

log = logging.getLogger(__name__)

OUTBOX_CHUNK_BYTES = LONGEST_LINE
LOG_CHUNK_BYTES = 256 * 1024
CONCURRENT_BATCHES = 4  # of outboxes, and as many of logs
EMPTY_HEAD_BYTES = len(msgspec.json.encode(TelemetryBatchHead(chunks=[])) + b"\n")
REJECTED_RETRY_SECONDS = 30.0
SERVER_ERROR_RETRY_SECONDS = 5.0  # after a server error for one file


@dataclass(frozen=True)
class OversizedLine:
    """An outbox line above the limit. It is skipped; the server counts and reports it."""

    length: int  # with its newline


@dataclass
class Stream:
    """One growing file of one job."""

    job_id: str
    file: GrowingFile
    incarnation: int
    is_log: bool
    shipped: int = 0  # the server stored everything before this offset
    known_size: int = 0  # bytes to ship: all of a log, complete lines of an outbox file
    last_scan: tuple[int, int] = (-1, 0)  # file size, and size of its complete lines
    served_at: float = 0.0  # monotonic
    retry_at: float = 0.0  # monotonic; after a rejected chunk or a read error
    unbatched: bool = False  # shipped by itself, after a batch with it was rejected
    unreadable: bool = False  # at the last scan; the file may be longer than `known_size`

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def name(self) -> str:
        return f"{LOG_FILE}#{self.incarnation}" if self.is_log else self.file.name

    def measure(self) -> int:
        """Measure the file; return the number of bytes to ship."""
        with self.file.open() as file:
            size = os.fstat(file.fileno()).st_size
            if size != self.last_scan[0]:
                self.last_scan = (size, size if self.is_log else whole_lines(file, size))
        self.known_size = self.last_scan[1]
        self.unreadable = False
        return self.known_size

    def read(self) -> bytes | OversizedLine:
        """Return the next chunk, of complete lines if it is an outbox; empty if there is none."""
        limit = LOG_CHUNK_BYTES if self.is_log else OUTBOX_CHUNK_BYTES
        with self.file.open() as file:
            file.seek(self.shipped)
            chunk = file.read(min(limit, self.known_size - self.shipped))
            if self.is_log:
                return chunk
            end = chunk.rfind(b"\n") + 1
            if end == 0 and len(chunk) == limit:
                return OversizedLine(skip_line(file, self.shipped, self.known_size) - self.shipped)
        return chunk[:end]


@dataclass
class Batch:
    """Chunks of several streams that go in one request."""

    chunks: list[tuple[Stream, TelemetryChunk, bytes]] = field(default_factory=list)
    size: int = EMPTY_HEAD_BYTES  # of the body

    def add(self, stream: Stream, chunk: bytes | OversizedLine) -> bool:
        """Add a chunk; return False if the batch is full. The first chunk always fits, so an oversized one ships alone:
        the limit may be a proxy's."""
        skipped, chunk = (chunk.length, b"") if isinstance(chunk, OversizedLine) else (0, chunk)
        head = TelemetryChunk(
            job_id=stream.job_id, file=stream.name, offset=stream.shipped, bytes=len(chunk), skipped=skipped
        )
        size = self.size + len(msgspec.json.encode(head)) + len(",") + len(chunk)
        if self.chunks and (len(self.chunks) == BATCH_CHUNKS or size > BATCH_BYTES):
            return False
        self.chunks.append((stream, head, chunk))
        self.size = size
        return True


@dataclass
class TelemetryShipper:
    """Ships every stream of every job with a record on this node.

    `jobs` returns the current records. `on_progress` is called when a stream is completely shipped.
    """

    api: AgentApi
    data: DataDirectory
    jobs: Callable[[], Iterable[JobRecord]]
    on_progress: Callable[[], None]
    streams: dict[tuple[str, str], Stream] = field(default_factory=dict)

    async def run(self, *, poll_seconds: float = 0.5) -> None:
        async with asyncio.TaskGroup() as tasks:
            for logs in (False, True):
                tasks.create_task(self._run(poll_seconds, logs=logs))

    async def _run(self, poll_seconds: float, *, logs: bool) -> None:
        backoff = Backoff(initial=0.5, maximum=20.0)
        while True:
            wait = poll_seconds
            try:
                await self._ship_all(logs=logs)
                backoff.succeeded()
            except ServerUnavailable as error:
                wait = max(poll_seconds, backoff.failed(error.retry_after))
                log.warning(
                    "shipping of %s is retried in %.1f s: %s", "logs" if logs else "outboxes", wait, error
                )
            await asyncio.sleep(wait)

    async def ship_once(self) -> None:
        """Ship all data present now. Raises ServerUnavailable at the first failed request."""
        for logs in (False, True):
            await self._ship_all(logs=logs)

    async def _ship_all(self, *, logs: bool) -> None:
        """Ship all present data of the logs, or of the outboxes. Raises ServerUnavailable."""
        self.scan()
        while batches := await asyncio.to_thread(self._load, self._of_kind(logs=logs)):
            results = await asyncio.gather(*map(self._ship, batches), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    def _of_kind(self, *, logs: bool) -> list[Stream]:
        return [stream for stream in self.streams.values() if stream.is_log == logs]

    def scan(self) -> None:
        """Find new files, measure all files, and drop the streams of removed jobs."""
        seen: set[tuple[str, str]] = set()
        for record in self.jobs():
            for stream in self._find(record):
                key = (stream.job_id, stream.name)
                seen.add(key)
                self._measure(self.streams.setdefault(key, stream))
        for key in [key for key in self.streams if key not in seen]:
            del self.streams[key]

    def _measure(self, stream: Stream) -> None:
        try:
            stream.measure()
        except OSError as error:
            stream.unreadable = True
            if time.monotonic() >= stream.retry_at:
                self._postpone(stream, f"it cannot be read: {error}")

    def offsets(self, job_id: str) -> list[OutboxOffset]:
        """Sizes and shipped offsets of a job's files; final if `scan` ran after the job's last process ended.

        An unreadable file counts one byte more than is known, so that the job is not considered complete.
        """
        return [
            OutboxOffset(
                file=stream.name, bytes=stream.known_size + stream.unreadable, shipped=stream.shipped
            )
            for stream in self.streams.values()
            if stream.job_id == job_id
        ]

    def _load(self, streams: Iterable[Stream]) -> list[Batch]:
        """Read the next chunk of every stream into at most CONCURRENT_BATCHES batches, least recently served first."""
        now = time.monotonic()
        batches: list[Batch] = []
        common: Batch | None = None
        for stream in sorted(streams, key=lambda stream: stream.served_at):
            if stream.shipped >= stream.known_size or now < stream.retry_at:
                continue
            try:
                chunk = stream.read()
            except FileNotFoundError:
                self._postpone(stream, "it disappeared before it was shipped")
                continue
            except OSError as error:
                self._postpone(stream, f"it cannot be read: {error}")
                continue
            if not chunk:
                continue
            if isinstance(chunk, OversizedLine):
                log.error(
                    "%s: the line at byte %d is skipped: %d bytes; a line has at most %d",
                    stream.path, stream.shipped, chunk.length, LONGEST_LINE,
                )  # fmt: skip
            if stream.unbatched or common is None or not common.add(stream, chunk):
                if len(batches) == CONCURRENT_BATCHES:
                    break
                batches.append(batch := Batch())
                batch.add(stream, chunk)
                if not stream.unbatched:
                    common = batch
            stream.served_at = now
        return batches

    async def _ship(self, batch: Batch) -> None:
        chunks = [chunk for _, chunk, _ in batch.chunks]
        try:
            replies = await self.api.ship(chunks, [body for *_, body in batch.chunks])
        except ApiError as error:
            self._split(batch, error)
            return
        for (stream, _, chunk), reply in zip(batch.chunks, replies, strict=True):
            stream.unbatched = False
            self._apply_reply(stream, chunk, reply)

    def _split(self, batch: Batch, error: ApiError) -> None:
        """Ship each stream by itself: one chunk, or the total size, made the server reject the batch."""
        streams = [stream for stream, *_ in batch.chunks]
        if len(streams) == 1:
            self._postpone(streams[0], str(error))
            return
        log.error(
            "%d files are shipped one by one, because the server rejected them together: %s",
            len(streams),
            error,
        )
        for stream in streams:
            stream.unbatched = True

    def _apply_reply(self, stream: Stream, chunk: bytes, reply: ChunkReply) -> None:
        """Apply the reply for one chunk. A problem with one file does not delay others."""
        if reply.status not in (200, 409):
            why = f"{reply.status} {reply.code}: {reply.detail}"
            self._postpone(
                stream, why, SERVER_ERROR_RETRY_SECONDS if reply.status >= 500 else REJECTED_RETRY_SECONDS
            )
            return
        if reply.status == 200 and reply.offset <= stream.shipped:
            self._postpone(
                stream, f"the server accepted {len(chunk)} bytes and its offset is still {reply.offset}"
            )
            return
        if reply.status == 409 and reply.offset == stream.shipped:
            self._postpone(stream, f"the server rejects its own offset {reply.offset}")
            return
        stream.shipped = reply.offset
        if stream.shipped > stream.known_size:
            log.error(
                "%s: the server has %d bytes, the file %d",
                stream.path,
                stream.shipped,
                stream.known_size,
            )
        if stream.shipped >= stream.known_size:
            self.on_progress()

    def _postpone(self, stream: Stream, why: str, seconds: float = REJECTED_RETRY_SECONDS) -> None:
        stream.retry_at = time.monotonic() + seconds
        log.error("%s is not shipped further for %g s: %s", stream.path, seconds, why)

    def _find(self, record: JobRecord) -> Iterable[Stream]:
        for incarnation in range(record.incarnation + 1):
            try:
                for file in outbox_files(self.data, record, incarnation):
                    yield Stream(record.job_id, file, incarnation, is_log=False)
            except Untrusted as error:
                log.error("the outbox of %s is not shipped: %s", record.name, error)
            output = log_file(self.data, record, incarnation)
            if output is not None:
                yield Stream(record.job_id, output, incarnation, is_log=True)
