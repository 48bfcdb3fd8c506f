"""How much of a job's output is kept: a token bucket per log, and a mark where something was left out.

A bucket rather than a cap on the last minute: after an outage an agent ships hours of output at once, and none of it
was written too fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

KIB, MIB = 1024, 1024 * 1024
PER_SECOND = 256 * KIB
AT_FIRST = 32 * MIB
MOST = 256 * MIB


@dataclass(frozen=True)
class Allowance:
    bytes: int
    at: datetime


@dataclass(frozen=True)
class Kept:
    """What becomes of a piece of output."""

    data: bytes  # to store, marks included
    dropped: (
        int  # bytes left out in all since the last piece that was kept whole; 0: nothing is being left out
    )
    allowance: Allowance


def keep(piece: bytes, *, allowance: Allowance | None, dropped: int, now: datetime) -> Kept:
    """Cut `piece` down to what may be kept. `dropped` is the count of the stretch that is being left out, if one is.

    A mark opens such a stretch and another one, with the count, closes it.
    """
    room = _room(allowance, now)
    # A stretch ends only when there is room for a good deal more: marks shall not take turns with single lines.
    if len(piece) > room or (dropped and room < len(piece) + MIB):
        kept = b"" if dropped else piece[: piece.rfind(b"\n", 0, room) + 1]
        mark = b"" if dropped else _begins()
        left_out = dropped + len(piece) - len(kept)
        return Kept(kept + mark, left_out, Allowance(room - len(kept), now))
    return Kept((_ended(dropped) if dropped else b"") + piece, 0, Allowance(room - len(piece), now))


def _room(allowance: Allowance | None, now: datetime) -> int:
    if allowance is None:
        return AT_FIRST
    return min(MOST, allowance.bytes + int(max(0.0, (now - allowance.at).total_seconds()) * PER_SECOND))


def _begins() -> bytes:
    return (
        f"[oolong] WARNING throttled: this job writes more than {PER_SECOND // KIB} KiB a second; "
        "what follows is left out\n"
    ).encode()


def _ended(dropped: int) -> bytes:
    return f"[oolong] WARNING throttled: {dropped} bytes were left out here\n".encode()
