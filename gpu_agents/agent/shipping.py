"""Outbox lines and logs on their way to the control plane: by offset, in order, at least once.

What all files of a node have grown by since the last look goes in one request, each piece with an answer of its own:
the server's work for a request is far more than for a line. The server owns the truth about offsets: it stores a
piece and its new offset in one transaction, and answers 409 with its own offset when a piece does not begin there.
So this side keeps no state on disk: after a restart it begins at 0 and is told where to go on.

Logs go in requests of their own, beside those of the outboxes: the server stores each piece of a log by itself, and
measurements do not wait for that.
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

from gpu_agents.agent.api import AgentApi, Refused, Unreachable
from gpu_agents.agent.backoff import Backoff
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
    Piece,
    TelemetryBatchHead,
)
from oolong.contracts.attempt import LOG_FILE

log = logging.getLogger(__name__)

OUTBOX_CHUNK_BYTES = LONGEST_LINE
LOG_CHUNK_BYTES = 256 * 1024
CONCURRENT_SHIPMENTS = 4  # of outboxes, and as many of logs
EMPTY_HEAD_BYTES = len(msgspec.json.encode(TelemetryBatchHead(pieces=[])) + b"\n")
REFUSED_RETRY_SECONDS = 30.0
BROKEN_RETRY_SECONDS = 5.0  # after an error of the server that concerned this file alone


@dataclass(frozen=True)
class TooLong:
    """An outbox line that is not shipped. The server counts it and reports it; what follows it ships."""

    length: int  # with its newline


@dataclass
class Stream:
    """One growing file of one job."""

    job_id: str
    file: GrowingFile
    incarnation: int
    is_log: bool
    shipped: int = 0  # the server has everything before this offset
    known_size: int = 0  # bytes that may be shipped: all of a log, whole lines of an outbox file
    measured: tuple[int, int] = (-1, 0)  # file size and whole-line size at the last look
    served_at: float = 0.0  # monotonic
    refused_until: float = 0.0  # monotonic; the server said no to this file, or it cannot be read
    alone: bool = False  # it was in a request that was refused as a whole, and so goes by itself
    unreadable: bool = False  # at the last look: it may be longer than is known

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def name(self) -> str:
        return f"{LOG_FILE}#{self.incarnation}" if self.is_log else self.file.name

    def measure(self) -> int:
        """Look at the file; the number of bytes that may be shipped now."""
        with self.file.open() as file:
            size = os.fstat(file.fileno()).st_size
            if size != self.measured[0]:
                self.measured = (size, size if self.is_log else whole_lines(file, size))
        self.known_size = self.measured[1]
        self.unreadable = False
        return self.known_size

    def read(self) -> bytes | TooLong:
        """The next chunk, ending at the end of a line where lines matter; empty when there is none."""
        limit = LOG_CHUNK_BYTES if self.is_log else OUTBOX_CHUNK_BYTES
        with self.file.open() as file:
            file.seek(self.shipped)
            chunk = file.read(min(limit, self.known_size - self.shipped))
            if self.is_log:
                return chunk
            end = chunk.rfind(b"\n") + 1
            if end == 0 and len(chunk) == limit:
                return TooLong(skip_line(file, self.shipped, self.known_size) - self.shipped)
        return chunk[:end]


@dataclass
class Shipment:
    """Chunks of several streams that go in one request."""

    chunks: list[tuple[Stream, Piece, bytes]] = field(default_factory=list)
    size: int = EMPTY_HEAD_BYTES  # of the body

    def add(self, stream: Stream, chunk: bytes | TooLong) -> bool:
        """False where there is no room for it. A chunk that is too large beside its head goes by itself: a proxy's
        limit may be that of the pieces."""
        skipped, chunk = (chunk.length, b"") if isinstance(chunk, TooLong) else (0, chunk)
        piece = Piece(
            job_id=stream.job_id, file=stream.name, offset=stream.shipped, bytes=len(chunk), skipped=skipped
        )
        size = self.size + len(msgspec.json.encode(piece)) + len(",") + len(chunk)
        if self.chunks and (len(self.chunks) == BATCH_CHUNKS or size > BATCH_BYTES):
            return False
        self.chunks.append((stream, piece, chunk))
        self.size = size
        return True


@dataclass
class Shipper:
    """Ships every stream of every job that the node still knows.

    `jobs` gives the current records. `moved` is called when a stream reached its end, so that the next report
    may go out at once.
    """

    api: AgentApi
    data: DataDirectory
    jobs: Callable[[], Iterable[JobRecord]]
    moved: Callable[[], None]
    streams: dict[tuple[str, str], Stream] = field(default_factory=dict)

    async def run(self, *, poll_seconds: float = 0.5) -> None:
        async with asyncio.TaskGroup() as tasks:
            for logs in (False, True):
                tasks.create_task(self._run(poll_seconds, logs=logs))

    async def _run(self, poll_seconds: float, *, logs: bool) -> None:
        backoff = Backoff(first=0.5, most=20.0)
        while True:
            wait = poll_seconds
            try:
                await self._ship_all(logs=logs)
                backoff.succeeded()
            except Unreachable as error:
                wait = max(poll_seconds, backoff.failed(error.retry_after))
                log.warning("shipping of %s waits %.1f s: %s", "logs" if logs else "outboxes", wait, error)
            await asyncio.sleep(wait)

    async def ship_once(self) -> None:
        """Ship everything that is there now. Raises Unreachable when the server is away, at its first sign."""
        for logs in (False, True):
            await self._ship_all(logs=logs)

    async def _ship_all(self, *, logs: bool) -> None:
        """What there is now of the logs, or of the outboxes. Raises Unreachable."""
        self.look()
        while shipments := await asyncio.to_thread(self._load, self._of_kind(logs=logs)):
            results = await asyncio.gather(*map(self._ship, shipments), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    def _of_kind(self, *, logs: bool) -> list[Stream]:
        return [stream for stream in self.streams.values() if stream.is_log == logs]

    def look(self) -> None:
        """Find new files and measure all of them; drop the streams of forgotten jobs."""
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
            if time.monotonic() >= stream.refused_until:
                self._refuse(stream, f"it cannot be read: {error}")

    def offsets(self, job_id: str) -> list[OutboxOffset]:
        """How far each file of a job is; final once its last process has ended and `look` ran after that. Of a file
        that cannot be read one byte more than is known: the job is not done with."""
        return [
            OutboxOffset(
                file=stream.name, bytes=stream.known_size + stream.unreadable, shipped=stream.shipped
            )
            for stream in self.streams.values()
            if stream.job_id == job_id
        ]

    def _load(self, streams: Iterable[Stream]) -> list[Shipment]:
        """The next chunk of every stream that has one, in as few shipments as hold them and not more than may go at
        once. Who was served the longest ago comes first."""
        now = time.monotonic()
        shipments: list[Shipment] = []
        common: Shipment | None = None
        for stream in sorted(streams, key=lambda stream: stream.served_at):
            if stream.shipped >= stream.known_size or now < stream.refused_until:
                continue
            try:
                chunk = stream.read()
            except FileNotFoundError:
                self._refuse(stream, "it disappeared before it was shipped")
                continue
            except OSError as error:
                self._refuse(stream, f"it cannot be read: {error}")
                continue
            if not chunk:
                continue
            if isinstance(chunk, TooLong):
                log.error(
                    "%s: the line at byte %d is skipped: %d bytes; a line has at most %d",
                    stream.path, stream.shipped, chunk.length, LONGEST_LINE,
                )  # fmt: skip
            if stream.alone or common is None or not common.add(stream, chunk):
                if len(shipments) == CONCURRENT_SHIPMENTS:
                    break
                shipments.append(shipment := Shipment())
                shipment.add(stream, chunk)
                if not stream.alone:
                    common = shipment
            stream.served_at = now
        return shipments

    async def _ship(self, shipment: Shipment) -> None:
        pieces = [piece for _, piece, _ in shipment.chunks]
        try:
            replies = await self.api.ship(pieces, [chunk for *_, chunk in shipment.chunks])
        except Refused as error:
            self._take_apart(shipment, error)
            return
        for (stream, _, chunk), reply in zip(shipment.chunks, replies, strict=True):
            stream.alone = False
            self._take(stream, chunk, reply)

    def _take_apart(self, shipment: Shipment, error: Refused) -> None:
        """The whole request was refused. It may be because of one piece, or of the size: each goes by itself."""
        streams = [stream for stream, *_ in shipment.chunks]
        if len(streams) == 1:
            self._refuse(streams[0], str(error))
            return
        log.error(
            "%d files are shipped one by one, because together they were refused: %s", len(streams), error
        )
        for stream in streams:
            stream.alone = True

    def _take(self, stream: Stream, chunk: bytes, reply: ChunkReply) -> None:
        """The answer to one piece: what is wrong with one file holds up no other."""
        if reply.status not in (200, 409):
            why = f"{reply.status} {reply.code}: {reply.detail}"
            self._refuse(stream, why, BROKEN_RETRY_SECONDS if reply.status >= 500 else REFUSED_RETRY_SECONDS)
            return
        if reply.status == 200 and reply.offset <= stream.shipped:
            self._refuse(stream, f"the server took {len(chunk)} bytes and stays at {reply.offset}")
            return
        if reply.status == 409 and reply.offset == stream.shipped:
            self._refuse(stream, f"the server refuses its own offset {reply.offset}")
            return
        stream.shipped = reply.offset
        if stream.shipped > stream.known_size:
            log.error(
                "%s: the server has %d bytes of it, the file %d",
                stream.path,
                stream.shipped,
                stream.known_size,
            )
        if stream.shipped >= stream.known_size:
            self.moved()

    def _refuse(self, stream: Stream, why: str, seconds: float = REFUSED_RETRY_SECONDS) -> None:
        stream.refused_until = time.monotonic() + seconds
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
