"""Shares and rates of a worker's engine."""

from __future__ import annotations

from gpu_agents.rollout.worker.meters import Meters, Reading
from gpu_agents.rollout.worker.supervision import Restarts


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_idle_is_the_time_without_a_running_request_and_boot_is_not_counted() -> None:
    clock = Clock()
    meters = Meters(clock=clock)
    clock.now = 20.0
    assert Reading.of(meters).rates_since(Reading.of(meters)) == {}
    meters.open()
    begin = Reading.of(meters)
    clock.now = 22.0
    meters.request_started()
    meters.request_started()
    clock.now = 25.0
    meters.request_ended()
    clock.now = 28.0
    meters.request_ended()
    meters.generated_tokens += 50
    meters.loaded(load_seconds=0.5, paused_seconds=1.0)
    clock.now = 30.0
    assert Reading.of(meters).rates_since(begin) == {
        "idle/rollout_share": 0.4,
        "sync/engine_paused_share": 0.1,
        "perf/generated_tokens_per_second": 5.0,
    }


def test_restarts_are_allowed_three_times_in_ten_minutes() -> None:
    restarts = Restarts()
    assert [restarts.allow(now=now) for now in (0.0, 10.0, 20.0, 30.0)] == [True, True, True, False]
    assert restarts.allow(now=601.0)
