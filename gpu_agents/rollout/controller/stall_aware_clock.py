"""Seconds in which this process could hear the others: who cannot be heard is not silent."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

STANDSTILL_SECONDS = 3.0  # a sleep that ends so much too late: the process, or its machine, stood still


class StallAwareClock:
    """A monotonic clock that leaves out the time in which this process stood still.

    Claims and engines end by silence. Without this, the first look at the time after a standstill would end them all,
    before the calls that had come meanwhile were read.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._missed = 0.0

    def __call__(self) -> float:
        return self._clock() - self._missed

    async def sleep(self, seconds: float) -> None:
        """Sleep, and leave out by how much too long it was."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(seconds)
        late = loop.time() - began - seconds
        if late > STANDSTILL_SECONDS:
            self._missed += late
            log.warning("stood still for %.1f s: nobody is taken for silent because of them", late)
