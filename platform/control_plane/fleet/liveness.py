"""Classifies nodes by the time since their last heartbeat (SEMANTICS section 7): pure functions of timestamps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.fleet.models import Liveness

MAX_CHECK_GAP = timedelta(
    seconds=15
)  # after a longer gap in our own checks, no node is classified for one lease
ORPHAN_MARGIN = timedelta(minutes=5)


@dataclass(frozen=True)
class Timeouts:
    lease: timedelta
    orphan: timedelta


def outage_grace(
    *,
    now: datetime,
    swept_at: datetime | None,
    receiver_at: datetime | None,
    suspended_until: datetime | None,
    timeouts: Timeouts,
) -> datetime | None:
    """Until when no node is classified: one lease from now after an outage of our own, else the previous value.

    `receiver_at` is when the web process, which receives heartbeats, was last known to be alive. The first check counts
    as an outage.
    """
    gaps = [moment is None or now - moment > MAX_CHECK_GAP for moment in (swept_at, receiver_at)]
    if any(gaps):
        return now + timeouts.lease
    return suspended_until


def classify(
    last_seen_at: datetime, *, now: datetime, suspended_until: datetime | None, timeouts: Timeouts
) -> Liveness:
    """READY up to one lease of silence; LOST after the orphan timeout plus a margin, when its jobs have ended."""
    if suspended_until is not None and now < suspended_until:
        return Liveness.READY
    silence = now - last_seen_at
    if silence > timeouts.orphan + ORPHAN_MARGIN:
        return Liveness.LOST
    return Liveness.UNRESPONSIVE if silence > timeouts.lease else Liveness.READY
