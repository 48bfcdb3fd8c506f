"""Waiting for a state: by asking for it, with one generous limit, and with words when it does not come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

SECONDS = 60.0  # a machine with ten times more to do than it can still gets there


class _Patience:
    def __init__(self, what: str | Callable[[], str], seconds: float) -> None:
        self._what, self._seconds = what, seconds
        self._deadline = time.monotonic() + seconds

    def check(self) -> None:
        if time.monotonic() > self._deadline:
            what = self._what if isinstance(self._what, str) else self._what()
            raise AssertionError(f"not within {self._seconds:g} s: {what}")


async def eventually(
    condition: Callable[[], object], what: str | Callable[[], str], *, seconds: float = SECONDS
) -> None:
    """Return once `condition` holds. For a state that stays: one that may pass unseen needs an event."""
    patience = _Patience(what, seconds)
    while not condition():
        patience.check()
        await asyncio.sleep(0.005)


def wait_until(
    condition: Callable[[], object], what: str | Callable[[], str], *, seconds: float = SECONDS
) -> None:
    """The same for tests without an event loop."""
    patience = _Patience(what, seconds)
    while not condition():
        patience.check()
        time.sleep(0.01)
