"""Time-boxed reservations and maintenance windows: who gets the slots, who may borrow them, and who has to leave."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.fleet.forecast import Duration, Occupant, Start, forecast
from control_plane.fleet.reservations import BORROW_LEAD, RELEASE_LEAD, is_active, reserve_slots
from control_plane.fleet.scheduler import plan
from control_plane.fleet.snapshot import (
    Holder,
    HolderKind,
    LoanRequest,
    Plan,
    Request,
    Reservation,
    Snapshot,
    TeamQuota,
    WaitCode,
)
from tests.unit.control_plane.fleet.test_scheduler import NOW, node, placed, request, snapshot, worlds
from tests.unit.control_plane.fleet.test_scheduler_over_time import (
    CYCLE,
    MIN_RUNTIME,
    Simulation,
    simulations,
)

HOUR = timedelta(hours=1)


def reservation(
    team: str = "blue", *, slots: int = 0, nodes: tuple[str, ...] = (), start: float = 0, hours: float = 2
) -> Reservation:
    begins = NOW + start * HOUR
    title = f"team {team}" if team else "new fans"
    return Reservation(
        f"res-{team}-{start}", begins, begins + hours * HOUR, title, team=team, slots=slots, nodes=nodes
    )


def reserving(world: Snapshot, *reservations: Reservation) -> Snapshot:
    return replace(world, reservations=reservations)


def lasting(one: Request, hours: float) -> Request:
    return replace(one, predicted_seconds=hours * 3600)


def holding(
    name: str, slots: int, *, team: str = "red", kind: HolderKind = HolderKind.RUN, at: str = "n"
) -> Holder:
    return Holder(name, team, at, tuple(f"cpu-{index}" for index in range(slots)), False, kind)


def test_slots_of_a_reservation_are_held_for_its_team_and_the_reason_says_until_when() -> None:
    decided = plan(reserving(snapshot([node("n", 4)], [request("red")]), reservation(slots=4)))
    assert not decided.placements
    assert decided.waiting["red"].code is WaitCode.RESERVED
    assert (
        decided.waiting["red"].message
        == "needs 1 slot on one node; 4 slots of n are held for team blue until 02:00 UTC"
    )


def test_the_team_of_a_reservation_starts_there_beyond_its_quota() -> None:
    blue = request("blue", 4, team="blue")
    world = snapshot([node("n", 4)], [blue], blue=0)
    assert placed(world) == {}
    assert placed(reserving(world, reservation(slots=4))) == {"blue": "n"}
    assert placed(reserving(world, reservation(slots=4, start=1))) == {}, "it has not begun"
    assert placed(reserving(world, reservation(slots=4, start=-3))) == {}, "it has ended"


def test_slots_in_use_under_a_reservation_do_not_count_toward_the_quota() -> None:
    blue = request("blue", 2, team="blue")
    held = replace(
        snapshot([node("n", 0, 4), node("other", 2)], [blue], {"blue": 4}, blue=2),
        holders=[holding("inside", 4, team="blue")],
    )
    assert placed(held) == {}
    assert placed(reserving(held, reservation(nodes=("n",)))) == {"blue": "other"}


def test_a_project_reservation_is_for_that_project_alone() -> None:
    mine = replace(reservation(slots=2), project="blue-a")
    queue = [replace(request("theirs", 2, team="blue"), project="blue-b")]
    assert placed(reserving(snapshot([node("n", 2)], queue), mine)) == {}
    queue = [replace(queue[0], project="blue-a")]
    assert placed(reserving(snapshot([node("n", 2)], queue), mine)) == {"theirs": "n"}


def test_before_the_start_only_runs_that_end_in_time_use_the_slots() -> None:
    soon = reservation(slots=4, start=0.5)
    queue = [
        lasting(request("short", 2, age=3), 0.5),
        lasting(request("long", 2), 0.6),
        request("unknown", 2),
    ]
    decided = plan(reserving(snapshot([node("n", 4)], queue), soon))
    assert [one.request for one in decided.placements] == ["short"]
    assert decided.waiting["long"].message == (
        "needs 2 slots on one node; 2 slots of n are held for team blue from 00:30 UTC until 02:30 UTC, and this run "
        "is not predicted to end before"
    )
    assert decided.waiting["unknown"].message.endswith("and when this run would end is unknown")


@pytest.mark.parametrize(
    ("lead", "borrows"), [(BORROW_LEAD, True), (BORROW_LEAD - timedelta(seconds=1), False)]
)
def test_a_run_with_checkpoints_borrows_while_enough_time_is_left(lead: timedelta, borrows: bool) -> None:
    trains = replace(request("trains", 4), saves_checkpoints=True)
    ahead = replace(reservation(slots=4), starts_at=NOW + lead, ends_at=NOW + 3 * HOUR)
    assert bool(placed(reserving(snapshot([node("n", 4)], [trains]), ahead))) is borrows


def test_other_nodes_go_before_borrowed_slots() -> None:
    trains = replace(request("trains", 2), saves_checkpoints=True)
    world = snapshot([node("kept", 2), node("other", 3)], [trains])
    assert placed(reserving(world, reservation(nodes=("kept",), start=3))) == {"trains": "other"}


def test_runs_leave_in_time_for_the_start_unless_they_end_before() -> None:
    ahead = replace(reservation(nodes=("n",)), starts_at=NOW + RELEASE_LEAD)
    world = replace(snapshot([node("n", 0, 2)], [], {"red": 2}), holders=[holding("stays", 2)])
    (preemption,) = plan(reserving(world, ahead)).preemptions
    assert (preemption.holder, preemption.request) == ("stays", "")
    assert preemption.why == "its slots are held for team blue from 00:05 UTC until 02:00 UTC"
    ending = {("n", f"cpu-{index}"): NOW + timedelta(minutes=4) for index in range(2)}
    assert not plan(reserving(replace(world, free_at=ending), ahead)).preemptions
    earlier = replace(ahead, starts_at=NOW + RELEASE_LEAD + timedelta(seconds=1))
    assert not plan(reserving(world, earlier)).preemptions
    own = replace(world, holders=[holding("own", 2, team="blue")])
    assert not plan(reserving(own, ahead)).preemptions


def test_runs_that_need_not_leave_are_spared() -> None:
    """Four of eight slots are reserved: the free ones first, then those of the run that loses least."""
    one = node("n", 1, 8)
    cheap = Holder("cheap", "red", "n", ("cpu-1", "cpu-2", "cpu-3"), False, HolderKind.RUN, False, 1.0)
    dear = Holder("dear", "red", "n", ("cpu-4", "cpu-5", "cpu-6", "cpu-7"), False, HolderKind.RUN, False, 9.0)
    world = replace(snapshot([one], [], {"red": 7}), holders=[dear, cheap])
    assert [one.holder for one in plan(reserving(world, reservation(slots=4))).preemptions] == ["cheap"]


def test_a_playground_may_use_idle_reserved_slots_until_a_run_of_the_team_needs_them() -> None:
    visitor = replace(request("visitor"), preemptible=True)
    world = reserving(snapshot([node("n", 2)], [visitor]), reservation(slots=2))
    assert placed(world) == {"visitor": "n"}
    taken = replace(
        reserving(
            snapshot([node("n", 1, 2)], [request("blue", 2, team="blue")], {"red": 1}), reservation(slots=2)
        ),
        holders=[Holder("visitor", "red", "n", ("cpu-1",), False, HolderKind.PLAYGROUND)],
    )
    decided = plan(taken)
    assert [(one.holder, one.request) for one in decided.preemptions] == [("visitor", "blue")]
    assert decided.waiting["blue"].code is WaitCode.RESERVED
    assert not plan(replace(taken, queue=())).preemptions, "nobody needs the slot"


def test_idle_reserved_slots_are_lent_as_engines_but_not_those_that_are_claimed() -> None:
    wanted = LoanRequest("attempt", "engines", request("red"), ("n",), 9)
    world = reserving(replace(snapshot([node("n", 2)], []), loan_requests=[wanted]), reservation(slots=2))
    assert len(plan(world).loans[0].slots) == 2
    visitor = Holder("visitor", "red", "n", ("cpu-1",), False, HolderKind.PLAYGROUND)
    claimed = replace(
        world,
        nodes=[node("n", 1, 2)],
        queue=[request("blue", 2, team="blue")],
        holders=[visitor],
        used={"red": 1},
    )
    assert plan(claimed).loans[0].slots == ()


def test_whole_nodes_are_chosen_where_fewest_runs_have_to_leave() -> None:
    nodes = [node("a", 0, 4), node("b", 3, 4), node("c", 4), node("d", 2)]
    world = snapshot(nodes, [], {"red": 5})
    assert list(plan(reserving(world, reservation(slots=4))).allocations["res-blue-0"]) == ["c"]
    chosen = plan(reserving(world, reservation(slots=6))).allocations["res-blue-0"]
    assert {name: len(slots) for name, slots in chosen.items()} == {"c": 4, "d": 2}


def test_what_was_chosen_stays_until_the_node_takes_no_jobs() -> None:
    before = replace(reservation(slots=2), allocation={"b": ("cpu-0", "cpu-1")})
    world = snapshot([node("a", 2), node("b", 2)], [])
    assert list(plan(reserving(world, before)).allocations[before.id]) == ["b"]
    broken = replace(world, nodes=[node("a", 2), node("b", 2, accepts=False, state="unresponsive")])
    assert list(plan(reserving(broken, before)).allocations[before.id]) == ["a"]


def test_a_node_that_is_silent_for_a_moment_keeps_the_reservation_of_the_runs_on_it() -> None:
    chosen = replace(reservation(slots=2), allocation={"b": ("cpu-0", "cpu-1")})
    silent = node("b", 0, 2, accepts=False, state="unresponsive")
    own = replace(
        snapshot([node("a", 2), silent], [], {"blue": 2}), holders=[holding("own", 2, team="blue", at="b")]
    )
    assert list(plan(reserving(own, chosen)).allocations[chosen.id]) == ["b"]
    foreign = replace(own, holders=[holding("foreign", 2, at="b")])
    assert list(plan(reserving(foreign, chosen)).allocations[chosen.id]) == ["a"]
    named = reserving(replace(foreign, nodes=[silent]), reservation(nodes=("b",)))
    assert not plan(named).preemptions, "nobody could use the slots"


def test_during_the_reservation_its_slots_stay_the_same() -> None:
    """Another run of the team on the node is not counted as one under the reservation."""
    chosen = replace(reservation(slots=2), allocation={"n": ("cpu-2", "cpu-3")})
    own = Holder("own", "blue", "n", ("cpu-0", "cpu-1"), False, HolderKind.RUN)
    one = replace(node("n", 0, 4), free=node("n", 4).free[2:], held=node("n", 4).free[:2])
    decided = plan(reserving(replace(snapshot([one], [], {"blue": 2}), holders=[own]), chosen))
    assert decided.allocations[chosen.id] == {"n": ["cpu-2", "cpu-3"]}


def test_two_reservations_at_the_same_time_never_keep_one_slot() -> None:
    world = snapshot([node("a", 4), node("b", 4)], [])
    both = reserving(world, reservation("blue", slots=4), reservation("red", slots=4))
    blue, red = plan(both).allocations.values()
    assert set(blue) != set(red)
    later = reserving(world, reservation("blue", slots=4), reservation("red", slots=4, start=2))
    blue, red = plan(later).allocations.values()
    assert set(blue) == set(red) == {"a"}, "one after the other"


def test_a_node_in_maintenance_gets_nothing_that_would_outlive_the_start() -> None:
    window = reservation("", nodes=("n",), start=0.5)
    queue = [request("eval", 2), lasting(request("short", 1), 0.4)]
    decided = plan(reserving(snapshot([node("n", 2)], queue), window))
    assert [one.request for one in decided.placements] == ["short"]
    assert decided.waiting["eval"].code is WaitCode.MAINTENANCE
    within = plan(reserving(snapshot([node("n", 2)], [request("eval", 2)]), window))
    assert within.waiting["eval"].message == (
        "needs 2 slots on one node; n is in maintenance from 00:30 UTC until 02:30 UTC (new fans), and when this run "
        "would end is unknown"
    )
    assert placed(reserving(snapshot([node("n", 2)], queue), reservation("", nodes=("n",), start=25))) != {}


def test_a_node_in_maintenance_is_drained_not_preempted() -> None:
    world = replace(snapshot([node("n", 0, 2)], [], {"red": 2}), holders=[holding("stays", 2)])
    assert not plan(reserving(world, reservation("", nodes=("n",)))).preemptions


def test_maintenance_of_a_reserved_node_goes_before_its_reservation() -> None:
    fans = reservation("", nodes=("n",), start=0.5)
    queue = [request("long", 1, team="blue", age=9), lasting(request("short", 1, team="blue"), 0.4)]
    decided = plan(reserving(snapshot([node("n", 2)], queue), reservation(nodes=("n",)), fans))
    assert [one.request for one in decided.placements] == ["short"]
    elsewhere = reserving(snapshot([node("n", 2), node("other", 2)], queue), reservation(slots=2), fans)
    assert list(plan(elsewhere).allocations["res-blue-0"]) == ["other"]
    running = replace(reservation(slots=2), allocation={"n": ("cpu-0", "cpu-1")})
    stays = replace(elsewhere, reservations=[running, fans])
    assert list(plan(stays).allocations["res-blue-0"]) == ["n"], "its runs are there"


def test_a_run_that_waits_for_the_end_of_a_reservation_is_forecast_to_start_then() -> None:
    waits = request("waits", 2)
    world = reserving(snapshot([node("n", 2)], [waits]), reservation(slots=2))
    assert forecast(world, [], {"waits": Duration(60, 60)})["waits"] == Start(7200.0, 7200.0)


def test_a_forecast_knows_that_runs_leave_for_a_reservation() -> None:
    blue, red = request("blue", 2, team="blue"), request("red", 2)
    world = replace(
        reserving(snapshot([node("n", 0, 2)], [blue], {"red": 2}), reservation(slots=2, start=1)),
        holders=[holding("red", 2)],
    )
    found = forecast(world, [Occupant(red, "n", ("cpu-0", "cpu-1"))], {"blue": Duration(60, 60)})["blue"]
    assert found.p50 is not None and 3300 <= found.p50 <= 3700


def test_a_forecast_knows_when_a_node_returns_from_its_maintenance() -> None:
    away = replace(node("n", 2, accepts=False, state="draining"), returns_at=NOW + HOUR)
    found = forecast(snapshot([away], [request("waits", 2)]), [], {"waits": Duration(60, 60)})["waits"]
    assert found == Start(3600.0, 3600.0)


def test_an_excluded_node_is_never_used_and_the_reason_names_the_field() -> None:
    without = replace(request("run"), exclude_nodes=frozenset({"a"}))
    assert placed(snapshot([node("a", 1), node("b", 2)], [without])) == {"run": "b"}
    alone = plan(snapshot([node("a", 1)], [without]))
    assert alone.waiting["run"].message == (
        "placement.exclude_nodes excludes every node of the pool; clone the run with a shorter list"
    )


def test_a_node_to_avoid_is_used_only_when_no_other_could_hold_the_run() -> None:
    retry = replace(request("run", 2), avoid_nodes=frozenset({"a"}))
    assert placed(snapshot([node("a", 2), node("b", 2)], [retry])) == {"run": "b"}
    assert placed(snapshot([node("a", 2), node("b", 1, 2)], [retry])) == {}, "it waits for b"
    assert placed(snapshot([node("a", 2), node("b", 1)], [retry])) == {"run": "a"}, "b is too small"
    cordoned = node("b", 2, accepts=False, state="cordoned")
    assert placed(snapshot([node("a", 2), cordoned], [retry])) == {"run": "a"}


@st.composite
def reserved_worlds(draw: st.DrawFn) -> Snapshot:
    """Worlds in which every holder of slots is known, with reservations and maintenance windows."""
    world = draw(worlds())
    holders = list(world.holders)
    known = {(one.node, slot) for one in holders for slot in one.slots}
    for view in world.nodes:
        for slot in view.held:
            if (view.id, slot.name) not in known:
                kind = draw(st.sampled_from(HolderKind))
                holders.append(
                    Holder(
                        f"{view.id}-{slot.name}", "red", view.id, (slot.name,), False, kind, project="red-a"
                    )
                )
    queue = [
        replace(
            one,
            predicted_seconds=draw(st.sampled_from([None, 600.0, 7200.0])),
            saves_checkpoints=not one.preemptible and draw(st.booleans()),
        )
        for one in world.queue
    ]
    names = [view.id for view in world.nodes]
    found = []
    for index in range(draw(st.integers(0, 3))):
        team = draw(st.sampled_from(["red", "blue", ""]))
        named = not team or draw(st.booleans())
        if named and not names:
            continue
        begins = NOW + timedelta(minutes=draw(st.sampled_from([-60, 0, 4, 30, 90, 600])))
        found.append(
            Reservation(
                f"res-{index}", begins, begins + timedelta(minutes=draw(st.integers(1, 120))),
                f"team {team}" if team else "fans", team=team,
                project=draw(st.sampled_from(["", f"{team}-a"])) if team else "",
                slots=0 if named else draw(st.integers(1, 6)),
                nodes=tuple(draw(st.lists(st.sampled_from(names), min_size=1, unique=True))) if named else (),
            )
        )  # fmt: skip
    return replace(world, holders=holders, queue=queue, reservations=found)


@settings(max_examples=150, deadline=None)
@given(reserved_worlds())
def test_any_plan_with_reservations_is_sound(world: Snapshot) -> None:
    decided = plan(world)
    backwards = replace(
        world, queue=world.queue[::-1], nodes=world.nodes[::-1], holders=world.holders[::-1],
        reservations=world.reservations[::-1],
    )  # fmt: skip
    assert decided == plan(backwards), "deterministic"
    by_id, views = {item.id: item for item in world.queue}, {view.id: view for view in world.nodes}
    taken = [(one.node, slot) for one in decided.placements for slot in one.slots]
    taken += [slot for loan in decided.loans for slot in loan.slots]
    assert len(taken) == len(set(taken)), "no slot is given twice"
    for name, slot in taken:
        assert views[name].accepts and slot in {free.name for free in views[name].free}
    assert {one.request for one in decided.placements} | set(decided.waiting) == set(by_id)
    assert all(len(one.slots) == by_id[one.request].slots for one in decided.placements)
    assert all(wait.message and "\n" not in wait.message for wait in decided.waiting.values())
    assert len({one.holder for one in decided.preemptions}) == len(decided.preemptions)
    assert_reserved(world, decided)
    assert_limits(world, decided)


def assert_reserved(world: Snapshot, decided: Plan) -> None:
    """Whoever gets a reserved slot owns it, leaves it at once, ends before the start, or can save in time."""
    reserved = reserve_slots(world)
    assert decided.allocations == reserved.allocations
    by_id = {item.id: item for item in world.queue}
    for one in decided.placements:
        request = by_id[one.request]
        own = reserved.active_for(request.team, request.project).get(one.node, set())
        for slot in one.slots:
            for one_of in reserved.by_node.get(one.node, {}).get(slot, ()):
                if slot in own and not one_of.is_maintenance:
                    continue  # it leaves in time for the next reservation
                left = (one_of.starts_at - world.now).total_seconds()
                owns = one_of.owns(request.team, request.project)
                ends = request.predicted_seconds is not None and request.predicted_seconds <= left
                leaves = request.preemptible and not one_of.is_maintenance
                saves = request.saves_checkpoints or request.preemptible
                assert owns or ends or leaves or (saves and left >= BORROW_LEAD.total_seconds())
    for slots in reserved.by_node.values():
        for chain in slots.values():
            teams = [one for one in chain if not one.is_maintenance]
            assert all(not one.overlaps(other) for one in teams for other in teams if one is not other), (
                "never reserved twice at one time"
            )
    for one in world.reservations:
        if not one.nodes and one.id in reserved.allocations:
            assert sum(map(len, reserved.allocations[one.id].values())) <= one.slots


def assert_limits(world: Snapshot, decided: Plan) -> None:
    """Beyond a limit is only what is under a reservation."""
    reserved = reserve_slots(world)
    by_id = {item.id: item for item in world.queue}
    used = {**world.used, **world.project_used}
    for holder in world.holders:
        own = sum(reserved.is_own(holder, slot) for slot in holder.slots)
        used[holder.team] -= own
        used[holder.project] -= own
    before = dict(used)
    granted = [(by_id[one.request], one.node, one.slots) for one in decided.placements]
    granted += [(loan.request.request, node, (slot,)) for loan in decided.loans for node, slot in loan.slots]
    for of, at, slots in granted:
        if not set(slots) <= reserved.active_for(of.team, of.project).get(at, set()):
            used[of.team] += len(slots)
            used[of.project] += len(slots)
    for owner, quota in {**world.quotas, **world.project_quotas}.items():
        assert quota.limit is None or used[owner] <= max(quota.limit, before[owner])


@settings(max_examples=150, deadline=None)
@given(reserved_worlds())
def test_no_slot_stays_free_beside_reservations(world: Snapshot) -> None:
    """The first request that waits for slots fits no node, whether slots are reserved or not, unless it says so."""
    decided = plan(world)
    taken = {(one.node, slot) for one in decided.placements for slot in one.slots}
    by_id = {item.id: item for item in world.queue}
    for name, wait in decided.waiting.items():
        if wait.code is WaitCode.RESERVED:
            return
        if wait.code in (WaitCode.CAPACITY, WaitCode.BEHIND):
            claimed = any(one.code is WaitCode.RESERVED for one in decided.waiting.values())
            for view in world.nodes:
                free = [slot for slot in view.free if (view.id, slot.name) not in taken]
                assert claimed or not view.accepts or len(free) < by_id[name].slots
            return


@settings(max_examples=100, deadline=None)
@given(reserved_worlds())
def test_the_slots_of_a_reservation_are_empty_or_its_own_from_its_start(world: Snapshot) -> None:
    """Every run on them ends, leaves, or is asked to leave, and its slots stay with the reservation."""
    decided = plan(world)
    reserved = reserve_slots(world)
    asked = {one.holder for one in decided.preemptions}
    accepts = {view.id: view.accepts for view in world.nodes}
    for holder in world.holders:
        if holder.kind is not HolderKind.RUN or holder.leaving or holder.id in asked:
            continue
        for slot in holder.slots:
            if not accepts[holder.node]:
                continue
            for one_of in reserved.by_node.get(holder.node, {}).get(slot, ()):
                assert (
                    one_of.is_maintenance
                    or not is_active(one_of, world.now)
                    or one_of.owns(holder.team, holder.project)
                )


def test_quota_and_reservation_add_up() -> None:
    """A team with a limit of 2 and a reservation of 4 holds 6."""
    queue = [request(f"blue-{index}", 2, age=9 - index, team="blue") for index in range(4)]
    world = replace(
        snapshot([node("a", 4), node("b", 4)], queue), quotas={"blue": TeamQuota(nominal=2, limit=2)}
    )
    found = placed(reserving(world, reservation(nodes=("a",))))
    assert found == {"blue-0": "a", "blue-1": "a", "blue-2": "b"}


@dataclass
class ReservedSimulation(Simulation):
    """A pool over many cycles, of which slots are reserved for a time."""

    reservations: list[Reservation] = field(default_factory=list)

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), reservations=self.reservations)

    def step(self) -> Plan:
        decided = super().step()
        self.reservations = [
            replace(one, allocation=decided.allocations.get(one.id, one.allocation))
            for one in self.reservations
        ]
        return decided


@settings(max_examples=100, deadline=None)
@given(simulations(), st.integers(0, 40), st.integers(1, 40), st.integers(1, 6), st.booleans(), st.data())
def test_no_run_starves_behind_a_reservation(
    world: Simulation, start: int, length: int, slots: int, saves: bool, data: st.DataObject
) -> None:
    """Once the reservation has ended, every run ends as without it. During it, only its team is on its slots."""
    for name, one in list(world.queue.items()):
        seconds = data.draw(st.sampled_from([None, world.work[name] * CYCLE.total_seconds()]))
        world.queue[name] = replace(one, predicted_seconds=seconds, saves_checkpoints=saves)
    begins = NOW + start * CYCLE
    of_team = Reservation("res", begins, begins + length * CYCLE, "team blue", team="blue", slots=slots)
    pool = ReservedSimulation(
        world.nodes, world.quotas, world.shares, world.work, world.queue, reservations=[of_team]
    )
    count = len(world.queue)
    bound = start + length + sum(world.work.values()) + (count + 1) * count * (MIN_RUNTIME + 2)
    while pool.cycle < bound and (pool.queue or pool.active):
        pool.step()
        if start + 1 < pool.cycle <= start + length:
            (of_blue,) = pool.reservations
            taken = {
                (one.node, slot)
                for one in pool.active.values()
                for slot in one.slots
                if one.request.team == "red"
            }
            reserved = {(node, slot) for node, names in of_blue.allocation.items() for slot in names}
            assert not taken & reserved
    assert not pool.active
    for wait in plan(pool.snapshot()).waiting.values():
        assert wait.code in (WaitCode.QUOTA, WaitCode.PROJECT_QUOTA, WaitCode.NOT_LENT)
