"""Wall-clock time per phase of a train step. Exactly one phase runs at any moment, so phases add up to the step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

MAX_LAPS = 256  # between two flushes; ranks that report nothing never flush


class PhaseTimer:
    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._since = clock()
        self._unix = time.time() - self._since  # added to the clock: unix seconds
        self._laps: deque[tuple[str, float, float]] = deque(maxlen=MAX_LAPS)
        self.flushed_laps: list[tuple[str, float, float]] = []  # phase, start, end in unix seconds
        self._phase = "prepare"
        self._seconds: dict[str, float] = {}
        self.flushed_at = time.time()  # Unix time of the last flush: its record may be written later

    def start(self, phase: str) -> None:
        """End the running phase and start `phase`."""
        now = self._clock()
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._since
        self._laps.append((self._phase, self._since + self._unix, now + self._unix))
        self._since, self._phase = now, phase

    def flush(self, next_phase: str) -> dict[str, float]:
        """Return the seconds per phase since the last flush, and start `next_phase`."""
        self.start(next_phase)
        self.flushed_at = time.time()
        self.flushed_laps = list(self._laps)
        self._laps.clear()
        seconds, self._seconds = self._seconds, {}
        return seconds
