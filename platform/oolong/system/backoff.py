"""Exponential backoff with jitter."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Doubling delays with jitter, so that many agents do not retry in the same second."""

    def __init__(self, *, initial: float, maximum: float, draw: Callable[[], float] = random.random) -> None:
        self._initial = initial
        self._maximum = maximum
        self._draw = draw
        self._failures = 0

    def failed(self, retry_after: float | None = None) -> float:
        """Record a failure; return the seconds to wait, at least the server's Retry-After."""
        wait = min(self._maximum, self._initial * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return max(wait * (0.5 + 0.5 * self._draw()), retry_after or 0.0)

    def succeeded(self) -> None:
        self._failures = 0
