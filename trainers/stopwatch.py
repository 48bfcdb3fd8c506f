"""Where the time of a step goes: at every moment exactly one phase is running, so phases add up to the step."""

from __future__ import annotations

import time
from collections.abc import Callable


class Stopwatch:
    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._since = clock()
        self._phase = "prepare"
        self._seconds: dict[str, float] = {}
        self.lapped_at = time.time()  # when the last lap ended: what is written of it may be written later

    def enter(self, phase: str) -> None:
        """The running phase ends here and `phase` begins."""
        now = self._clock()
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._since
        self._since, self._phase = now, phase

    def lap(self, next_phase: str) -> dict[str, float]:
        """Seconds by phase since the last lap; the next lap begins in `next_phase`."""
        self.enter(next_phase)
        self.lapped_at = time.time()
        seconds, self._seconds = self._seconds, {}
        return seconds
