"""How long to wait before the next try."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Doubling waits with jitter, so that a hundred agents do not come back in the same second."""

    def __init__(self, *, first: float, most: float, draw: Callable[[], float] = random.random) -> None:
        self._first = first
        self._most = most
        self._draw = draw
        self._failures = 0

    def failed(self, retry_after: float | None = None) -> float:
        """Seconds to wait after one more failure; what the server asked for counts if it is longer."""
        wait = min(self._most, self._first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return max(wait * (0.5 + 0.5 * self._draw()), retry_after or 0.0)

    def succeeded(self) -> None:
        self._failures = 0
