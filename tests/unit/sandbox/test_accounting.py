"""Whose time it was: what a test used, what it waited for, and what it gets back. Without a sandbox."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from oolong.sandbox import Limits, accounting, resource_usage
from oolong.sandbox.accounting import TimeAccounting
from oolong.sandbox.resource_usage import ThreadSchedule, starved_seconds

LIMITS = Limits(cpu_seconds=6, wall_seconds=10, total_wall_seconds=60)
FIRST, TEST, SIBLING = 1, 2, 3


class World:
    """A clock, the time that a control group counts, and the threads of a sandbox."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.used = 0.0
        self.threads: dict[int, ThreadSchedule] = {}
        monkeypatch.setattr(accounting, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(resource_usage, "thread_schedules", lambda pid: dict(self.threads))
        self.accounting = TimeAccounting(LIMITS)
        group = SimpleNamespace(cpu_seconds=lambda: self.used)
        self.accounting.start(FIRST, group)  # type: ignore[arg-type]
        self.accounting.start_test()

    def run(self, *, ran: float, waited: float, slept: float = 0.0) -> None:
        """One thread continues for so long."""
        before = self.threads.get(TEST, ThreadSchedule(0.0, 0.0))
        self.threads[TEST] = ThreadSchedule(before.ran_seconds + ran, before.waited_seconds + waited)
        self.used += ran
        self.now += ran + waited + slept
        self.accounting.sample(at_once=True)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_starved_time_extends_the_test(world: World) -> None:
    world.run(ran=4.0, waited=6.0)
    assert world.accounting.test_deadline == world.now
    assert world.accounting.grant_extension() == pytest.approx(6.0)
    assert world.accounting.test_deadline == world.now + 6.0
    world.run(ran=1.0, waited=5.0)
    assert world.accounting.grant_extension() == pytest.approx(5.0)
    world.run(ran=0.2, waited=0.3, slept=4.5)
    assert world.accounting.grant_extension() == 0.0, "less than a tenth of the bound is not worth a word"
    assert not world.accounting.was_starved(total=False)


def test_sleeping_or_computing_test_gets_no_extension(world: World) -> None:
    world.run(ran=3.0, waited=0.5, slept=6.5)
    assert world.accounting.grant_extension() == 0.0
    assert not world.accounting.was_starved(total=False)


def test_starvation_beyond_the_maximum_is_a_sandbox_error(world: World) -> None:
    world.run(ran=0.1, waited=9.9)
    given = 0.0
    while more := world.accounting.grant_extension():
        given += more
        world.run(ran=0.0, waited=more)
    assert given == pytest.approx(2 * LIMITS.wall_seconds)
    assert world.accounting.was_starved(total=False)
    assert "other programs of this machine had the cores for 29." in world.accounting.starved_message()


def test_test_over_its_cpu_limit_gets_no_extension(world: World) -> None:
    world.run(ran=6.6, waited=5.0)
    assert world.accounting.cpu_exceeded() and world.accounting.grant_extension() == 0.0
    assert not world.accounting.was_starved(total=False), "its result is the limit that it passed"


def test_earlier_tests_do_not_count_toward_the_current_one(world: World) -> None:
    world.run(ran=5.0, waited=4.0)
    world.threads.clear()
    world.accounting.start_test()
    world.run(ran=5.0, waited=0.0)
    assert not world.accounting.cpu_exceeded() and world.accounting.grant_extension() == 0.0
    world.run(ran=1.6, waited=0.0)
    assert world.accounting.cpu_exceeded()


def test_many_tests_that_waited_a_little_make_the_whole_time_no_result(world: World) -> None:
    for _ in range(10):
        world.run(ran=4.0, waited=0.9)
        world.threads.clear()
        world.accounting.start_test()
    assert world.accounting.was_starved(total=True) and not world.accounting.was_starved(total=False)


def test_what_the_first_process_waited_for_before_a_test_is_not_counted(world: World) -> None:
    world.threads[FIRST] = ThreadSchedule(1.0, 50.0)
    world.run(ran=1.0, waited=0.0)
    assert world.accounting.grant_extension() == 0.0


@pytest.mark.parametrize(
    ("threads", "used", "starved"),
    [
        ({TEST: ThreadSchedule(4.0, 6.0)}, 4.0, 6.0),
        ({TEST: ThreadSchedule(4.0, 6.0)}, 10.0, 0.0),  # what ran in its place was its own, and has ended
        ({TEST: ThreadSchedule(5.0, 5.0), SIBLING: ThreadSchedule(5.0, 5.0)}, 10.0, 0.0),  # two on one core
        ({TEST: ThreadSchedule(2.0, 8.0), SIBLING: ThreadSchedule(2.0, 8.0)}, 4.0, 6.0),
        ({}, 3.0, 0.0),
    ],
)
def test_a_program_cannot_starve_itself(
    threads: dict[int, ThreadSchedule], used: float, starved: float
) -> None:
    assert starved_seconds(threads, used) == pytest.approx(starved)


def test_next_sample_comes_before_a_limit_can_be_exceeded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting.os, "cpu_count", lambda: 4)
    long = TimeAccounting(Limits(cpu_seconds=900, wall_seconds=86_400, total_wall_seconds=86_400))
    assert long.sample_interval() == pytest.approx(900.5 / 4)
    assert world.accounting.sample_interval() == accounting.MIN_SAMPLE_SECONDS
