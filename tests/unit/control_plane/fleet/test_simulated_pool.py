"""The scheduler over simulated days: what a single plan cannot show."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from control_plane.fleet.scheduler import plan
from control_plane.fleet.snapshot import Placement, Plan, Snapshot, TeamQuota, Wait, WaitCode
from tests.unit.control_plane.fleet import simulated_pool
from tests.unit.control_plane.fleet.pool_report import PoolReport, fair_shares, jain
from tests.unit.control_plane.fleet.simulated_pool import SimulatedPool
from tests.unit.control_plane.fleet.synthetic_load import DAY, HOUR, Load, TeamLoad, submissions

TEAMS = {
    "red": TeamLoad(0.6, TeamQuota(nominal=8)),
    "blue": TeamLoad(0.3, TeamQuota(nominal=12)),
    "guests": TeamLoad(0.1, TeamQuota(limit=4)),
}
SMALL = Load(
    TEAMS, days=1, nodes=6, slots_per_node=4, slots={1: 0.5, 2: 0.3, 4: 0.2}, offered_load=1.0,
    longest_duration=8 * HOUR, node_mtbf=24 * HOUR,
)  # fmt: skip


@cache  # several tests look at the same days
def played(seed: int) -> PoolReport:
    return SimulatedPool(SMALL, seed=seed).play()


@pytest.mark.parametrize("seed", range(3))
def test_every_run_of_a_day_finishes_and_every_plan_is_sound(seed: int) -> None:
    report = played(seed)
    assert report.runs == len(submissions(SMALL, seed=seed)) > 50
    assert report.node_failures > 0
    assert report.preemptions > 0
    assert 0 < report.utilization <= report.efficiency <= 1


def test_the_same_seed_gives_the_same_day() -> None:
    assert SimulatedPool(SMALL, seed=1).play() == played(1)
    assert submissions(SMALL, seed=1) != submissions(SMALL, seed=2)


def test_a_nominal_quota_shortens_the_waits_of_its_team() -> None:
    without = {team: replace(one, quota=replace(one.quota, nominal=0)) for team, one in TEAMS.items()}
    with_quota = played(0)
    no_quota = SimulatedPool(replace(SMALL, teams=without), seed=0).play()
    assert with_quota.waits["blue"].p90 < no_quota.waits["blue"].p90
    assert with_quota.preemptions > no_quota.preemptions


def test_the_load_has_a_daily_cycle_and_a_long_tail() -> None:
    found = submissions(replace(SMALL, days=10, sigma=1.2), seed=0)
    afternoon = sum(12 <= one.at % DAY / HOUR < 18 for one in found)
    night = sum(0 <= one.at % DAY / HOUR < 6 for one in found)
    assert afternoon > 3 * night
    durations = sorted((one.duration for one in found), reverse=True)
    assert sum(durations[: len(durations) // 10]) > 0.3 * sum(durations)


def unsound(snapshot: Snapshot) -> Plan:
    """Places the first request on the first node, whatever is free there."""
    first = snapshot.queue[0]
    node = snapshot.nodes[0]
    slots = tuple(slot.name for slot in (*node.held, *node.free)[: first.slots])
    waiting = {one.id: Wait(WaitCode.BEHIND, "") for one in snapshot.queue[1:]}
    return Plan((Placement(first.id, node.id, slots),), waiting)


def idle(snapshot: Snapshot) -> Plan:
    return Plan((), {one.id: Wait(WaitCode.CAPACITY, "") for one in snapshot.queue})


def forgetful(snapshot: Snapshot) -> Plan:
    decisions = plan(snapshot)
    return replace(decisions, waiting=dict(list(decisions.waiting.items())[1:]))


@pytest.mark.parametrize(
    ("scheduler", "notice"),
    [
        (unsound, "a slot is not free"), (idle, "fits, but waits"), (forgetful, "neither placed nor explained"),
    ],
)  # fmt: skip
def test_the_simulation_notices_a_broken_scheduler(
    monkeypatch: pytest.MonkeyPatch, scheduler: object, notice: str
) -> None:
    monkeypatch.setattr(simulated_pool, "plan", scheduler)
    with pytest.raises(AssertionError, match=notice):
        SimulatedPool(SMALL, seed=0).play()


def test_fair_shares_give_nominal_quotas_first_and_divide_the_rest() -> None:
    quotas = {"red": TeamQuota(nominal=4), "blue": TeamQuota(), "guests": TeamQuota(limit=1)}
    demand = {"red": 20, "blue": 20, "guests": 20}
    assert fair_shares(11, demand, quotas) == pytest.approx({"red": 7, "blue": 3, "guests": 1})
    assert fair_shares(11, {**demand, "red": 2}, quotas) == pytest.approx({"red": 2, "blue": 8, "guests": 1})


def test_jains_index_is_one_for_equal_shares_and_a_quarter_for_one_of_four() -> None:
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
