"""Limit on scoring errors before the run ends (pure)."""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 300.0
FEW = 5  # fewer errors never end a run


class ErrorBudget:
    """Counts verifier and sandbox errors of the last five minutes. With `max_rate` >= 1 it never ends a run."""

    def __init__(self, max_rate: float) -> None:
        self._max_rate = max_rate
        self._calls: deque[tuple[float, bool]] = deque()  # time, is error
        self._errors = 0
        self._consecutive = 0
        self.exceeded = ""  # the reason, once the limit was exceeded

    def note(self, *, error: bool, now: float, message: str = "") -> None:
        self._calls.append((now, error))
        self._errors += error
        self._consecutive = self._consecutive + 1 if error else 0
        while self._calls[0][0] < now - WINDOW_SECONDS:
            self._errors -= self._calls.popleft()[1]
        if self.exceeded or self._max_rate >= 1 or not error:
            return
        total = len(self._calls)
        if self._consecutive >= FEW:
            self.exceeded = f"{self._consecutive} consecutive completions got no score; last error: {message}"
        elif self._errors >= FEW and self._errors > self._max_rate * total:
            self.exceeded = (
                f"{self._errors} of the last {total} completions got no score, more than "
                f"reward.max_error_rate={self._max_rate:g}; last error: {message}"
            )
