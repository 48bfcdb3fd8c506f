"""Monotonic clock that excludes stalls, so that peers are not declared dead after one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

STALL_SECONDS = 3.0  # a sleep that ends so much too late: this process or its machine was suspended


class StallAwareClock:
    """A monotonic clock without the time in which this process was stalled.

    Claims and engines time out. Without this, the first tick after a stall would expire all of them, before the calls
    that arrived during the stall were read.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._stalled_seconds = 0.0

    def __call__(self) -> float:
        return self._clock() - self._stalled_seconds

    async def sleep(self, seconds: float) -> None:
        """Sleep, and exclude by how much too long the sleep was."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        await asyncio.sleep(seconds)
        overslept = loop.time() - started - seconds
        if overslept > STALL_SECONDS:
            self._stalled_seconds += overslept
            log.warning("stalled for %.1f s: this time counts toward no timeout", overslept)
