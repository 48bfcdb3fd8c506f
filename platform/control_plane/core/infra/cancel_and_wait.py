"""Cancel background tasks reliably."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

RETRY_SECONDS = 1.0


async def cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait until they have ended.

    `asyncio.wait_for` of Python 3.11, which the client of Valkey uses too, loses a cancellation that arrives
    together with its result (bpo-37658), so a task that keeps running is canceled again.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=RETRY_SECONDS)
