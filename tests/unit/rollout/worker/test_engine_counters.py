"""Shares and rates of a worker's engine."""

from __future__ import annotations

from gpu_agents.rollout.engines.errors import EngineUnavailable
from gpu_agents.rollout.worker.engine_counters import CounterSnapshot, EngineCounters
from gpu_agents.rollout.worker.engine_supervisor import Restarts


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_idle_is_the_time_without_a_running_request_and_boot_is_not_counted() -> None:
    clock = Clock()
    meters = EngineCounters(clock=clock)
    clock.now = 20.0
    assert CounterSnapshot.of(meters).rates_since(CounterSnapshot.of(meters)) == {}
    meters.open()
    begin = CounterSnapshot.of(meters)
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
    assert CounterSnapshot.of(meters).rates_since(begin) == {
        "idle/rollout_frac": 0.4,
        "weight_sync/engine_paused_frac": 0.1,
        "perf/generated_tokens_per_second": 5.0,
    }


def test_restarts_are_allowed_three_times_in_ten_minutes() -> None:
    restarts = Restarts()
    assert [restarts.allow(now=now) for now in (0.0, 10.0, 20.0, 30.0)] == [True, True, True, False]
    assert restarts.allow(now=601.0)


def test_boots_that_fail_one_after_another_end_the_restarts_however_long_each_takes() -> None:
    restarts = Restarts()
    assert [restarts.allow(now=now, booted=False) for now in (300.0, 650.0)] == [True, True]
    assert not restarts.allow(now=1000.0, booted=False)
    assert "failed to boot 3 times in a row: no memory" in restarts.exhausted_message(
        EngineUnavailable("no memory")
    )


def test_a_boot_that_succeeds_ends_the_count_of_failed_ones() -> None:
    restarts = Restarts()
    deaths = [(300.0, False), (900.0, False), (1600.0, True), (2300.0, False), (3000.0, False)]
    assert all(restarts.allow(now=now, booted=booted) for now, booted in deaths)
    assert not restarts.allow(now=3700.0, booted=False)
