"""When a failed delivery is tried again."""

from __future__ import annotations

from datetime import timedelta

# After the first failure, the second, ...: some 24 hours in all.
RETRY_DELAYS = tuple(
    timedelta(seconds=seconds)
    for seconds in (5, 30, 120, 600, 1800, 3600, 2 * 3600, 4 * 3600, 6 * 3600, 10 * 3600)
)
JITTER = 0.2  # a share of the wait, either way: receivers that come back are not hit at one moment
DISABLE_AFTER = timedelta(hours=24)  # of nothing but failures


def retry_delay(tries: int, *, random: float) -> timedelta | None:
    """How long to wait after this many failed tries, `random` in [0, 1). None: it is given up."""
    if tries > len(RETRY_DELAYS):
        return None
    return RETRY_DELAYS[tries - 1] * (1 + JITTER * (2 * random - 1))
