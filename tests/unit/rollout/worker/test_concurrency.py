"""The window of a worker: pure decisions, and a scripted engine that is too small for what the spec allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from aiohttp import web

from gpu_agents.rollout.worker.concurrency import LoadSample, Window, WindowLimits, aimd_update
from oolong.contracts.rollout import PublishedWeights
from oolong.contracts.telemetry import Points
from tests.support.waiting import eventually
from tests.unit.rollout.fake_engine import FakeEngine
from tests.unit.rollout.harness import Harness

BOUNDS = WindowLimits(group_size=4, max_rollouts=64, kv_tokens=32_000, longest_tokens=1_000)
CALM = LoadSample(running_requests=32, waiting_requests=0, kv_cache_frac=0.3, retractions=0, held=32)


def test_it_begins_with_what_fits_at_full_length() -> None:
    assert BOUNDS.first_window() == 32
    assert replace(BOUNDS, kv_tokens=1_000_000).first_window() == 64
    assert replace(BOUNDS, kv_tokens=2_000).first_window() == 4, "never less than one group"


@pytest.mark.parametrize(
    ("pressure", "size"),
    [
        (CALM, 40),  # room and a full window: a quarter more
        (replace(CALM, held=31), 32),  # the window does not bind
        (replace(CALM, kv_cache_frac=0.8), 32),  # enough in use
        (replace(CALM, waiting_requests=1), 32),  # a request on its way in: no reason to cut, none to grow
        (replace(CALM, kv_cache_frac=0.95), 28),
        (replace(CALM, retractions=1), 25),
        (replace(CALM, waiting_requests=9), 32),  # a queue once may be a burst
    ],
)
def test_one_look(pressure: LoadSample, size: int) -> None:
    assert aimd_update(Window(size=32), pressure, BOUNDS).size == size


def test_a_queue_that_stays_cuts_and_after_a_cut_growth_is_one_group_at_a_time() -> None:
    queue = replace(CALM, waiting_requests=9)
    window = aimd_update(aimd_update(Window(size=32), queue, BOUNDS), queue, BOUNDS)
    assert (window.size, window.was_cut) == (28, True)
    assert aimd_update(window, queue, BOUNDS).size == 28, "the queue from before the cut is not counted twice"
    assert aimd_update(window, replace(CALM, held=28), BOUNDS).size == 32


@pytest.mark.parametrize("capacity", [12, 30, 50])
def test_it_settles_near_the_engines_capacity(capacity: int) -> None:
    """An engine that decodes `capacity` requests and queues the rest: after the start it stays within two groups."""
    window, sizes = Window(size=BOUNDS.first_window()), []
    for _ in range(60):
        running = min(window.size, capacity)
        waiting = window.size - running
        pressure = LoadSample(
            running_requests=running,
            waiting_requests=waiting,
            kv_cache_frac=0.5,
            retractions=0,
            held=window.size,
        )
        window = aimd_update(window, pressure, BOUNDS)
        sizes.append(window.size)
    assert capacity - 4 <= min(sizes[30:]) <= max(sizes[30:]) <= capacity + 8


class SettledEngine(FakeEngine):
    settled: Callable[[int], bool] = staticmethod(lambda _: False)

    async def _loads(self, call: web.Request) -> web.Response:
        await eventually(lambda: self.settled(len(self.running)), "the engine has what the window allows")
        return await super()._loads(call)


async def test_a_worker_gives_a_small_engine_no_more_than_it_can_decode(
    new_harness: Callable[..., Harness],
    versions: Callable[[int], PublishedWeights],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine answers a look once it has what the window before allows, however slow the machine is."""
    monkeypatch.setattr("gpu_agents.rollout.worker.worker.ADAPT_SECONDS", 0.03)
    monkeypatch.setattr("gpu_agents.rollout.worker.worker.REPORT_SECONDS", 0.2)
    spec = {"rollout": {"engine_max_running_requests": 64, "max_new_tokens": 60}, "staleness": {"max": 40}}
    engine = SettledEngine(token_seconds=0.002, places=12)
    async with engine, new_harness(**spec) as run:
        worker = run.start_worker(engine.port, engine.api_key)
        size = run.spec.rollout.group_size

        def settled(running: int) -> bool:
            """Whole groups come, so that it may have some members more than the window."""
            held, window = worker.worker._permits.held, worker.worker.window.size
            return window <= held < window + size and running >= held

        engine.settled = settled
        await run.trainer.announce(versions(0), "none")
        await run.until(lambda: worker.worker.window.size <= 16)
        assert worker.worker.window.was_cut
        for version in range(3):
            await run.trainer.take(version)
            await run.trainer.announce(versions(version + 1))
        assert 8 <= worker.worker.window.size <= 22
        # One point a second: the first may be from before the first look.
        measured = {"engine/window", "engine/retractions", "engine/waiting_requests", "engine/kv_cache_frac"}
        await run.until(lambda: any(measured <= set(p.values) for p in points(run)))


def points(run: Harness) -> list[Points]:
    return [line for line in run.lines("rollout-0") if isinstance(line, Points)]


async def test_an_engine_that_does_not_say_how_busy_it_is_is_filled_to_the_specs_bound(
    new_harness: Callable[..., Harness],
    engine: FakeEngine,
    versions: Callable[[int], PublishedWeights],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gpu_agents.rollout.worker.worker.ADAPT_SECONDS", 0.02)
    engine.says_load = False
    engine.token_seconds = 0.01
    small = {"engine_max_running_requests": 16, "engine_max_total_tokens": 1200}
    async with new_harness(staleness={"max": 8}, rollout=small) as run:
        worker = run.start_worker(engine.port, engine.api_key)
        assert worker.worker.window.size == 2
        await run.trainer.announce(versions(0), "none")
        await run.until(lambda: len(engine.running) >= 14)
        assert worker.worker.window.size == 16


async def test_the_members_of_a_group_share_its_prompt(
    new_harness: Callable[..., Harness], engine: FakeEngine, versions: Callable[[int], PublishedWeights]
) -> None:
    """All members go to one engine; the scripted one has a prompt in its cache from the first request on."""
    async with new_harness(rollout={"group_size": 8}, staleness={"max": 1}) as run:
        worker = run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        await run.trainer.take(0)
        meters = worker.engine.counters
        assert meters.cached_tokens / meters.input_tokens > 0.6
