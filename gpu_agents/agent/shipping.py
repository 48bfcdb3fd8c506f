"""Outbox lines and logs on their way to the control plane: by offset, in order, at least once.

The server owns the truth about offsets: it stores a chunk and its new offset in one transaction, and answers
409 with its own offset when a chunk does not begin there. So this side keeps no state on disk: after a
restart it begins at 0 and is told where to go on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gpu_agents.agent.api import AgentApi, Refused, Shipped, Unreachable
from gpu_agents.agent.backoff import Backoff
from gpu_agents.agent.records import JobRecord
from gpu_agents.agent.settings import DataDirectory
from oolong.contracts.agent import OutboxOffset
from oolong.contracts.attempt import LOG_FILE, OUTBOX_DIRECTORY

log = logging.getLogger(__name__)

OUTBOX_CHUNK_BYTES = 1024 * 1024
LOG_CHUNK_BYTES = 256 * 1024
CONCURRENT_STREAMS = 8
REFUSED_RETRY_SECONDS = 30.0


@dataclass
class Stream:
    """One growing file of one job."""

    job_id: str
    path: Path
    incarnation: int
    is_log: bool
    shipped: int = 0  # the server has everything before this offset
    known_size: int = 0  # bytes that may be shipped: all of a log, whole lines of an outbox file
    measured: tuple[int, int] = (-1, 0)  # file size and whole-line size at the last look
    refused_until: float = 0.0  # monotonic; the server said no to this file

    @property
    def name(self) -> str:
        return f"{LOG_FILE}#{self.incarnation}" if self.is_log else self.path.name

    def measure(self) -> int:
        """Look at the file; the number of bytes that may be shipped now."""
        size = self.path.stat().st_size
        if size != self.measured[0]:
            whole = size if self.is_log else whole_lines(self.path, size)
            self.measured = (size, whole)
        self.known_size = self.measured[1]
        return self.known_size

    def read(self) -> bytes:
        """The next chunk, ending at the end of a line where lines matter; empty when there is none."""
        limit = LOG_CHUNK_BYTES if self.is_log else OUTBOX_CHUNK_BYTES
        with self.path.open("rb") as file:
            file.seek(self.shipped)
            chunk = file.read(min(limit, self.known_size - self.shipped))
        if self.is_log or len(chunk) < limit:
            return chunk
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            raise LineTooLong(f"{self.path}: the line at offset {self.shipped} is longer than {limit} bytes")
        return chunk[:end]


class LineTooLong(Exception):
    """An outbox line that cannot be shipped in one piece."""


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
    _backoff: Backoff = field(default_factory=lambda: Backoff(first=0.5, most=20.0))

    async def run(self, *, poll_seconds: float = 0.5) -> None:
        while True:
            wait = poll_seconds
            try:
                await self.ship_once()
                self._backoff.succeeded()
            except Unreachable as error:
                wait = max(poll_seconds, self._backoff.failed(error.retry_after))
                log.warning("shipping waits %.1f s: %s", wait, error)
            await asyncio.sleep(wait)

    async def ship_once(self) -> None:
        """Ship everything that is there now. Raises Unreachable when the server is away, at its first sign."""
        self.look()
        now = time.monotonic()
        due = [
            stream
            for stream in self.streams.values()
            if stream.shipped < stream.known_size and now >= stream.refused_until
        ]
        if not due:
            return
        free = asyncio.Semaphore(CONCURRENT_STREAMS)

        async def ship(stream: Stream) -> None:
            async with free:
                await self._ship_stream(stream)

        results = await asyncio.gather(*(ship(stream) for stream in due), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def look(self) -> None:
        """Find new files and measure all of them; drop the streams of forgotten jobs."""
        seen: set[tuple[str, str]] = set()
        for record in self.jobs():
            for stream in self._find(record):
                key = (stream.job_id, stream.name)
                seen.add(key)
                self.streams.setdefault(key, stream).measure()
        for key in [key for key in self.streams if key not in seen]:
            del self.streams[key]

    def offsets(self, job_id: str) -> list[OutboxOffset]:
        """How far each file of a job is; final once its last process has ended and `look` ran after that."""
        return [
            OutboxOffset(file=stream.name, bytes=stream.known_size, shipped=stream.shipped)
            for stream in self.streams.values()
            if stream.job_id == job_id
        ]

    async def _ship_stream(self, stream: Stream) -> None:
        try:
            while stream.shipped < stream.known_size:
                chunk = await asyncio.to_thread(stream.read)
                reply = await self._send(stream, chunk)
                if not reply.conflict and reply.offset <= stream.shipped:
                    raise Unreachable(
                        f"{stream.path.name}: the server took {len(chunk)} bytes and stays at {reply.offset}"
                    )
                if reply.conflict and reply.offset == stream.shipped:
                    raise Unreachable(f"{stream.path.name}: the server refuses its own offset {reply.offset}")
                stream.shipped = reply.offset
                if stream.shipped > stream.known_size:
                    log.error(
                        "%s: the server has %d bytes of it, the file %d",
                        stream.path,
                        stream.shipped,
                        stream.known_size,
                    )
            self.moved()
        except FileNotFoundError:
            log.error("%s disappeared before it was shipped", stream.path)
        except (Refused, LineTooLong) as error:
            stream.refused_until = time.monotonic() + REFUSED_RETRY_SECONDS
            log.error("%s is not shipped further for %g s: %s", stream.path, REFUSED_RETRY_SECONDS, error)

    async def _send(self, stream: Stream, chunk: bytes) -> Shipped:
        if stream.is_log:
            return await self.api.ship_log(stream.job_id, stream.incarnation, stream.shipped, chunk)
        return await self.api.ship_outbox(stream.job_id, stream.path.name, stream.shipped, chunk)

    def _find(self, record: JobRecord) -> Iterable[Stream]:
        for incarnation in range(record.incarnation + 1):
            directory = self.data.job(record.attempt_id, record.name, incarnation)
            for path in sorted((directory / OUTBOX_DIRECTORY).glob("*.jsonl")):
                yield Stream(record.job_id, path, incarnation, is_log=False)
            output = directory / LOG_FILE
            if output.exists():
                yield Stream(record.job_id, output, incarnation, is_log=True)


def whole_lines(path: Path, size: int) -> int:
    """Bytes of the first `size` up to and including the last newline."""
    with path.open("rb") as file:
        end = size
        while end > 0:
            begin = max(0, end - 64 * 1024)
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            if newline >= 0:
                return begin + newline + 1
            end = begin
    return 0
