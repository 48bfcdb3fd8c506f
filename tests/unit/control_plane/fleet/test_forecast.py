"""Forecasts of starts: the scheduler replayed on predicted durations."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.fleet.forecast import MAX_REQUESTS, Duration, Occupant, Start, forecast
from control_plane.fleet.snapshot import Holder, HolderKind, NodeSnapshot, Request, Snapshot, TeamQuota
from tests.unit.control_plane.fleet.test_scheduler import NOW, cpus, node, request, snapshot, worlds

EXACT = Duration(100.0, 100.0)


def occupant(name: str, where: NodeSnapshot, remaining: Duration, *, team: str = "red") -> Occupant:
    slots = tuple(slot.name for slot in where.held)
    return Occupant(request(name, len(slots), team=team), where.id, slots, remaining)


def test_a_run_starts_when_the_run_that_holds_its_slots_ends() -> None:
    full = node("n", 0, 2)
    world = snapshot([full], [request("waits", 2)], {"red": 2})
    found = forecast(world, [occupant("runs", full, EXACT)], {})
    assert found == {"waits": Start(pytest.approx(100), pytest.approx(100))}


def test_runs_queue_behind_each_other_by_their_durations() -> None:
    full = node("n", 0, 2)
    queue = [request("first", 2, age=9), request("second", 2, age=8), request("third", 2, age=7)]
    durations = {"first": Duration(50, 50), "second": Duration(30, 30)}
    found = forecast(snapshot([full], queue, {"red": 2}), [occupant("runs", full, EXACT)], durations)
    assert [found[name].p50 for name in ("first", "second", "third")] == pytest.approx([100, 150, 180])


def test_what_waits_for_a_run_of_unknown_length_is_unknown() -> None:
    full = node("n", 0, 2)
    world = snapshot([full], [request("waits", 2)], {"red": 2})
    found = forecast(world, [occupant("runs", full, Duration())], {})["waits"]
    assert (found.p50, found.p90) == (None, None)
    assert found.reason == "it waits for runs whose end is unknown"


def test_an_upper_bound_alone_gives_a_latest_start_and_no_median() -> None:
    full = node("n", 0, 2)
    world = snapshot([full], [request("waits", 2)], {"red": 2})
    found = forecast(world, [occupant("runs", full, Duration(None, 600.0))], {})["waits"]
    assert (found.p50, found.p90, found.reason) == (None, pytest.approx(600), "")


def test_a_run_that_no_node_holds_has_no_start_and_one_that_fits_starts_now() -> None:
    world = snapshot([node("n", 2)], [request("huge", 9), request("fits", 2)])
    found = forecast(world, [], {})
    assert found["fits"] == Start(0.0, 0.0)
    assert found["huge"].p90 is None and "cannot start" in found["huge"].reason


def test_spread_durations_spread_the_start() -> None:
    full = node("n", 0, 2)
    world = snapshot([full], [request("waits", 2)], {"red": 2})
    found = forecast(world, [occupant("runs", full, Duration(100.0, 300.0))], {})["waits"]
    assert found.p50 is not None and found.p90 is not None
    assert found.p50 == pytest.approx(100) and 300 < found.p90 < 600


def test_a_run_within_its_quota_starts_after_the_preemption_of_a_borrower_and_the_borrower_again_later() -> (
    None
):
    full = node("n", 0, 2)
    own = replace(request("own", 2, team="blue"), project="b")
    holder = Holder(
        "borrower", "red", "n", ("cpu-0", "cpu-1"), False, HolderKind.RUN, protected=True, project="r"
    )
    world = Snapshot(
        NOW,
        [full],
        [own],
        {"red": 2},
        {"blue": TeamQuota(nominal=2)},
        holders=[holder],
        project_used={"r": 2},
    )
    borrower = replace(request("borrower", 2), project="r")
    runs = [Occupant(borrower, "n", ("cpu-0", "cpu-1"), Duration(10_000, 10_000))]
    found = forecast(world, runs, {"own": Duration(60, 60)}, min_runtime=300)["own"]
    assert found.p50 is not None and 300 <= found.p50 < 500, "after the minimum runtime and the checkpoint"


def test_the_wait_of_a_retry_is_the_earliest_start() -> None:
    later = replace(request("retry", 1), not_before=NOW + timedelta(seconds=64))
    found = forecast(snapshot([node("n", 1)], [later]), [], {})["retry"]
    assert found.p50 == pytest.approx(64)


@settings(max_examples=60, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_a_forecast_is_deterministic_and_its_quantiles_are_in_order(
    world: Snapshot, rng: random.Random
) -> None:
    durations = {
        one.id: rng.choice([Duration(), Duration(None, 900.0), Duration(100.0), Duration(60.0, 400.0)])
        for one in world.queue
    }
    occupants = [
        Occupant(
            request(holder.id, len(holder.slots), team=holder.team), holder.node, holder.slots,
            rng.choice([Duration(), Duration(30.0, 90.0)]),
        )
        for holder in world.holders
    ]  # fmt: skip
    found = forecast(world, occupants, durations, min_runtime=100)
    backwards = replace(world, queue=world.queue[::-1], nodes=world.nodes[::-1], holders=world.holders[::-1])
    assert found == forecast(backwards, occupants[::-1], durations, min_runtime=100)
    assert found.keys() == {one.id for one in world.queue}
    for start in found.values():
        assert start.p90 is not None or start.reason
        assert start.p50 is None or start.p90 is None or start.p50 <= start.p90
    one = forecast(world, occupants, durations, watch={world.queue[0].id}) if world.queue else {}
    assert len(one) <= 1


def test_the_cost_of_a_long_queue_is_bounded() -> None:
    nodes = [node(f"n{number}", 0, 8) for number in range(64)]
    runs = [occupant(f"r{one.id}", one, Duration(600.0, 6000.0)) for one in nodes]
    queue = [
        Request(f"q{n}", f"q{n}", f"team-{n % 5}", 500, 1 + n % 8, NOW - timedelta(seconds=n))
        for n in range(400)
    ]
    world = Snapshot(NOW, nodes, queue, {"red": 512})
    started = time.process_time()
    found = forecast(world, runs, {one.id: Duration(600.0, 3000.0) for one in queue})
    assert time.process_time() - started < 4, "a few hundred milliseconds on a quiet machine"
    known = [name for name, start in found.items() if start.p50 is not None]
    assert MAX_REQUESTS // 2 <= len(known) <= MAX_REQUESTS
    assert sum("wait ahead of it" in start.reason for start in found.values()) == 400 - MAX_REQUESTS


def test_nine_of_ten_true_starts_are_before_the_p90_and_half_before_the_p50() -> None:
    """Worlds whose true durations are drawn from the predicted distributions: the forecast is calibrated."""
    rng, before, middle, count = random.Random(0), 0, 0, 120
    for number in range(count):
        nodes = [node(f"n{index}", 0, 4) for index in range(3)]
        remaining = Duration(1000.0, 4000.0)
        runs = [
            Occupant(request(f"r{number}-{one.id}-{slot.name}"), one.id, (slot.name,), remaining)
            for one in nodes
            for slot in one.held
        ]
        queue = [request(f"q{number}-{n}", rng.choice([1, 2]), age=20 - n) for n in range(5)]
        durations = {one.id: remaining for one in queue}
        world = snapshot(nodes, queue, {"red": 12})
        drawn = {one.request.id: remaining.quantile(rng.random()) for one in runs}
        drawn |= {one.id: remaining.quantile(rng.random()) for one in queue}
        last = queue[-1].id
        exact = [
            replace(one, remaining=Duration(drawn[one.request.id], drawn[one.request.id])) for one in runs
        ]
        truth = forecast(world, exact, {name: Duration(s, s) for name, s in drawn.items()}, watch={last})[
            last
        ].p50
        found = forecast(world, runs, durations, watch={last})[last]
        assert truth is not None and found.p50 is not None and found.p90 is not None
        before += truth <= found.p90
        middle += truth <= found.p50
    assert 0.80 <= before / count <= 0.97
    assert 0.35 <= middle / count <= 0.65


def test_names_of_slots_that_are_not_healthy_do_not_become_free() -> None:
    half = NodeSnapshot("n", "n", (), cpus(1), True)
    world = snapshot([half, node("big", 0, 2)], [request("waits", 2)], {"red": 2})
    runs = [Occupant(request("r", 2), "n", ("cpu-0", "cpu-broken"), EXACT)]
    assert forecast(world, runs, {})["waits"].p50 is None
