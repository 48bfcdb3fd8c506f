"""The end of background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

ASK_AGAIN_SECONDS = 1.0


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel them and wait until they have ended.

    `asyncio.wait_for` of Python 3.11, which the client of Valkey uses too, loses a cancellation that comes in the
    same turn as its result (bpo-37658): a task that goes on for ever is cancelled again.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=ASK_AGAIN_SECONDS)
