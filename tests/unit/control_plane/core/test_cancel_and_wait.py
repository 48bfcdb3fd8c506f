from __future__ import annotations

import asyncio

import pytest

from control_plane.core.infra import cancel_and_wait


async def test_a_task_that_loses_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel_and_wait, "RETRY_SECONDS", 0.01)
    lost: list[int] = []

    async def for_ever(loses: int) -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if len(lost) == loses:
                    raise
                lost.append(1)

    tasks = [asyncio.create_task(for_ever(2)), asyncio.create_task(asyncio.sleep(0))]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await cancel_and_wait.cancel_and_wait(tasks)
    assert tasks[0].cancelled() and tasks[1].done() and len(lost) == 2
