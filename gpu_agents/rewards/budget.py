"""How many completions may go without a score before the run ends: a pure count over a window of time."""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 300.0
FEW = 5  # fewer errors than this never end a run, unless they came one after the other


class ErrorBudget:
    """Errors of the verifier or the sandbox among the calls of the last five minutes.

    `max_share` 1 or more: they are only counted.
    """

    def __init__(self, max_share: float) -> None:
        self._max_share = max_share
        self._calls: deque[tuple[float, bool]] = deque()  # when, and whether it was an error
        self._errors = 0
        self._in_a_row = 0
        self.exceeded = ""  # the reason, once there is one; it stays

    def note(self, *, error: bool, now: float, message: str = "") -> None:
        self._calls.append((now, error))
        self._errors += error
        self._in_a_row = self._in_a_row + 1 if error else 0
        while self._calls[0][0] < now - WINDOW_SECONDS:
            self._errors -= self._calls.popleft()[1]
        if self.exceeded or self._max_share >= 1 or not error:
            return
        total = len(self._calls)
        if self._in_a_row >= FEW:
            self.exceeded = f"{self._in_a_row} completions in a row got no score; the last: {message}"
        elif self._errors >= FEW and self._errors > self._max_share * total:
            self.exceeded = (
                f"{self._errors} of the last {total} completions got no score, more than "
                f"reward.max_error_rate={self._max_share:g}; the last: {message}"
            )
