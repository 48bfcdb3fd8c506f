"""A controller that stood still takes nobody for silent because of it."""

from __future__ import annotations

import asyncio
import time

import pytest

from gpu_agents.rollout.controller import stall_aware_clock
from gpu_agents.rollout.controller.stall_aware_clock import StallAwareClock


async def test_time_in_which_it_stood_still_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_aware_clock, "STALL_SECONDS", 0.03)
    clock = StallAwareClock()
    began, there = clock(), time.monotonic()
    asyncio.get_running_loop().call_soon(time.sleep, 0.05)
    await clock.sleep(0.0)
    assert time.monotonic() - there == pytest.approx(0.05, abs=0.001)
    assert clock() - began == pytest.approx(0.0, abs=0.001)


async def test_a_sleep_that_is_a_little_late_is_time_like_any_other() -> None:
    now = [100.0]
    clock = StallAwareClock(lambda: now[0])
    await clock.sleep(0.0)
    now[0] += 60.0
    assert clock() == 160.0
