"""When silence means something (SEMANTICS section 7): pure functions of clocks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.fleet.models import Liveness

SWEEP_GAP = timedelta(seconds=15)  # a longer gap of ours suspends every judgement for one lease
ORPHAN_MARGIN = timedelta(minutes=5)


@dataclass(frozen=True)
class Clocks:
    lease: timedelta
    orphan: timedelta


def suspension(
    *,
    now: datetime,
    swept_at: datetime | None,
    receiver_at: datetime | None,
    suspended_until: datetime | None,
    clocks: Clocks,
) -> datetime | None:
    """Until when no node may be judged: one lease from now after a gap of our own, else what was set before.

    `receiver_at` is when the process that takes heartbeats was last known to live. A first sweep counts as a gap.
    """
    gaps = [moment is None or now - moment > SWEEP_GAP for moment in (swept_at, receiver_at)]
    if any(gaps):
        return now + clocks.lease
    return suspended_until


def judge(
    last_seen_at: datetime, *, now: datetime, suspended_until: datetime | None, clocks: Clocks
) -> Liveness:
    """Silence up to the lease is nothing; beyond orphan time plus a margin the node has ended its own jobs."""
    if suspended_until is not None and now < suspended_until:
        return Liveness.READY
    silence = now - last_seen_at
    if silence > clocks.orphan + ORPHAN_MARGIN:
        return Liveness.LOST
    return Liveness.UNRESPONSIVE if silence > clocks.lease else Liveness.READY
