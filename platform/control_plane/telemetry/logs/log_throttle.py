"""Limit how much of a job's output is stored: a token bucket per log, and a marker where output was dropped.

A bucket rather than a limit per minute: after an outage an agent ships hours of output at once, and none of it was
written too fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

KIB, MIB = 1024, 1024 * 1024
BYTES_PER_SECOND = 256 * KIB
INITIAL_BYTES = 32 * MIB
MAX_BYTES = 256 * MIB


@dataclass(frozen=True)
class TokenBucket:
    bytes: int  # that may be stored at once
    at: datetime  # when that was so


@dataclass(frozen=True)
class Admission:
    data: bytes  # to store, markers included
    dropped: int  # bytes dropped since output was last stored whole; 0: none is being dropped
    bucket: TokenBucket


def admit(chunk: bytes, *, bucket: TokenBucket | None, dropped: int, now: datetime) -> Admission:
    """Decide how much of `chunk` to store. `dropped` counts the current gap, if there is one.

    A marker begins a gap, and another one with the count ends it.
    """
    room = _refill(bucket, now)
    # A gap ends only when there is room for a good deal more: markers must not alternate with single lines.
    if len(chunk) > room or (dropped and room < len(chunk) + MIB):
        stored = b"" if dropped else chunk[: chunk.rfind(b"\n", 0, room) + 1]
        marker = b"" if dropped else _begin_marker()
        total = dropped + len(chunk) - len(stored)
        return Admission(stored + marker, total, TokenBucket(room - len(stored), now))
    marker = _end_marker(dropped) if dropped else b""
    return Admission(marker + chunk, 0, TokenBucket(room - len(chunk), now))


def _refill(bucket: TokenBucket | None, now: datetime) -> int:
    if bucket is None:
        return INITIAL_BYTES
    seconds = max(0.0, (now - bucket.at).total_seconds())
    return min(MAX_BYTES, bucket.bytes + int(seconds * BYTES_PER_SECOND))


def _begin_marker() -> bytes:
    return (
        f"[oolong] WARNING throttled: this job writes more than {BYTES_PER_SECOND // KIB} KiB a second; "
        "what follows is left out\n"
    ).encode()


def _end_marker(dropped: int) -> bytes:
    return f"[oolong] WARNING throttled: {dropped} bytes were left out here\n".encode()
