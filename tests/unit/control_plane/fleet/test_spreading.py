"""Trainers that are spread over several nodes where none is large enough: no database, no clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.fleet.forecast import Duration, Occupant, forecast
from control_plane.fleet.scheduler import plan
from control_plane.fleet.snapshot import Holder, HolderKind, NodeSnapshot, Request, Snapshot, WaitCode
from oolong.gpu_slots import device_of
from tests.unit.control_plane.fleet.test_scheduler import NOW, node, request, shared_gpus, snapshot


def near(name: str, free: int, total: int | None = None, *, network: str = "rack") -> NodeSnapshot:
    return replace(node(name, free, total), peer_network=network)


def wide(name: str = "wide", *, ranks: int, engines: int = 0, nodes: int = 2, priority: int = 500) -> Request:
    waits = request(name, ranks + engines, priority=priority)
    return replace(waits, trainer_ranks=ranks, max_nodes=nodes, saves_checkpoints=True)


def test_ranks_are_spread_only_where_no_node_is_large_enough() -> None:
    full = node("large", 0, 4)
    assert not plan(snapshot([full, near("a", 2), near("b", 2)], [wide(ranks=4)])).placements, (
        "it waits for one node"
    )
    (found,) = plan(snapshot([near("a", 2), near("b", 2)], [wide(ranks=4)])).placements
    assert found.parts == (("a", ("cpu-0", "cpu-1")), ("b", ("cpu-0", "cpu-1")))


def test_a_run_without_more_nodes_in_its_spec_stays_on_one() -> None:
    decided = plan(snapshot([near("a", 2), near("b", 2)], [wide(ranks=4, nodes=1)]))
    assert decided.waiting["wide"].code is WaitCode.NEVER_FITS


def test_the_head_node_gets_all_engines_and_at_least_one_rank() -> None:
    (found,) = plan(snapshot([near("a", 3), near("b", 4)], [wide(ranks=4, engines=2)])).placements
    assert (found.node, len(found.slots)) == ("b", 4)
    assert found.others == (("a", ("cpu-0", "cpu-1")),)


def test_as_few_nodes_as_possible() -> None:
    nodes = [near("a", 1), near("b", 1), near("c", 3), near("d", 3)]
    (found,) = plan(snapshot(nodes, [wide(ranks=6, nodes=4)])).placements
    assert [name for name, _ in found.parts] == ["c", "d"]


def test_nodes_of_another_network_or_without_an_address_are_left_out() -> None:
    nodes = [near("a", 2), near("b", 2, network="else"), node("c", 2)]
    decided = plan(snapshot(nodes, [wide(ranks=4)]))
    assert decided.waiting["wide"].code is WaitCode.NEVER_FITS
    assert decided.waiting["wide"].message == (
        "needs 4 slots: its engines and a rank of the trainer on one node, the other ranks on 1 more at most "
        "(placement.nodes), all with peer addresses in one network; the largest node has 2"
    )


def test_ranks_on_different_nodes_have_a_gpu_each() -> None:
    nodes = [NodeSnapshot(name, name, shared_gpus(2), (), True, peer_network="rack") for name in "ab"]
    (found,) = plan(snapshot(nodes, [wide(ranks=4)])).placements
    assert found.parts == (("a", ("GPU-0/0", "GPU-1/0")), ("b", ("GPU-0/0", "GPU-1/0")))


def test_the_nodes_that_it_waits_for_take_no_other_run() -> None:
    nodes = [near("a", 1, 2), near("b", 2)]
    decided = plan(snapshot(nodes, [wide(ranks=4, priority=900), request("small")]))
    assert not decided.placements
    assert decided.waiting["wide"].message == "needs 4 slots on 2 nodes; 3 are free on a and b"
    assert decided.waiting["small"].code is WaitCode.BEHIND


def test_a_second_one_waits_behind_the_first() -> None:
    nodes = [near("a", 1, 2), near("b", 2)]
    decided = plan(snapshot(nodes, [wide("first", ranks=4, priority=900), wide("second", ranks=4)]))
    assert decided.waiting["second"].message == (
        "needs 4 slots on 2 nodes at most; the nodes are reserved for runs ahead of it"
    )


def test_engines_on_idle_slots_leave_for_it_and_runs_do_not() -> None:
    nodes = [near("a", 1, 2), near("b", 1, 2)]
    engine = Holder("engine", "red", "a", ("cpu-1",), False)
    other = Holder("other", "red", "b", ("cpu-1",), False, HolderKind.PLAYGROUND)
    decided = plan(replace(snapshot(nodes, [wide(ranks=4)], {"red": 2}), holders=[engine, other]))
    assert {one.holder for one in decided.preemptions} == {"engine", "other"}
    run = replace(other, kind=HolderKind.RUN)
    assert not plan(
        replace(snapshot(nodes, [wide(ranks=4)], {"red": 2}), holders=[engine, run])
    ).preemptions, "one engine less does not suffice"


def test_the_forecast_frees_all_nodes_of_a_run() -> None:
    nodes = [near("a", 0, 2), near("b", 0, 2)]
    world = snapshot(nodes, [wide("next", ranks=4)], {"red": 4})
    two = ("cpu-0", "cpu-1")
    running = Occupant(wide("now", ranks=4), "a", two, Duration(60.0, 60.0), (("b", two),))
    starts = forecast(world, [running], {"next": Duration(60.0, 60.0)})
    assert starts["next"].p50 == 60.0


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    nodes = []
    for index in range(draw(st.integers(0, 5))):
        free, held = draw(st.integers(0, 3)), draw(st.integers(0, 2))
        one = near(f"n{index}", free, free + held, network=draw(st.sampled_from(["", "x", "x", "y"])))
        nodes.append(replace(one, accepts=draw(st.sampled_from([True, True, True, False]))))
    queue = []
    for index in range(draw(st.integers(0, 6))):
        ranks, engines = draw(st.integers(1, 6)), draw(st.integers(0, 2))
        waits = wide(f"r{index}", ranks=ranks, engines=engines, nodes=draw(st.integers(1, 3)))
        submitted = NOW - timedelta(seconds=draw(st.integers(0, 9)))
        avoided = frozenset(draw(st.sampled_from([(), (), ("n0",)])))
        queue.append(
            replace(
                waits,
                submitted_at=submitted,
                priority=draw(st.sampled_from([0, 1000])),
                avoid_nodes=avoided,
            )
        )
    holders = [
        Holder(
            f"{one.id}-{slot.name}",
            "red",
            one.id,
            (slot.name,),
            draw(st.booleans()),
            draw(st.sampled_from(HolderKind)),
        )
        for one in nodes
        for slot in one.held
        if draw(st.booleans())
    ]
    used = {"red": sum(len(one.held) for one in nodes)}
    return replace(snapshot(nodes, queue, used), holders=holders)


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_any_plan_is_sound(world: Snapshot) -> None:
    decided = plan(world)
    backwards = replace(world, queue=world.queue[::-1], nodes=world.nodes[::-1], holders=world.holders[::-1])
    assert decided == plan(backwards), "deterministic"
    by_id, views = {one.id: one for one in world.queue}, {one.id: one for one in world.nodes}
    given_out = [(name, slot) for one in decided.placements for name, slots in one.parts for slot in slots]
    assert len(given_out) == len(set(given_out)), "no slot is given twice"
    for name, slot in given_out:
        assert views[name].accepts and slot in {free.name for free in views[name].free}
    for one in decided.placements:
        wants = by_id[one.request]
        assert sum(len(slots) for _, slots in one.parts) == wants.slots, "all or nothing"
        names = [name for name, _ in one.parts]
        assert len(set(names)) == len(names) <= wants.max_nodes
        if not one.others:
            continue
        assert len({views[name].peer_network for name in names}) == 1 and views[one.node].peer_network
        assert all(len(view.free) + len(view.held) < wants.slots for view in world.nodes), (
            "none is large enough"
        )
        engines = wants.slots - wants.trainer_ranks
        ranks = [len(one.slots) - engines, *(len(slots) for _, slots in one.others)]
        assert min(ranks) >= 1 and sum(ranks) == wants.trainer_ranks
        for name, slots in one.others:
            assert len({device_of(slot) for slot in slots}) == len(slots), name
    assert {one.request for one in decided.placements} | set(decided.waiting) == set(by_id)


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_the_first_run_that_waits_starts_once_its_nodes_are_free(world: Snapshot) -> None:
    """No starvation: whatever the runs behind it get, what it waits for stays its own."""
    decided = plan(world)
    waiting = [name for name, wait in decided.waiting.items() if wait.code is WaitCode.CAPACITY]
    if not waiting or not any(one.accepts for one in world.nodes):
        return
    taken = {(name, slot) for one in decided.placements for name, slots in one.parts for slot in slots}
    by_id = {one.id: one for one in world.queue}
    first = by_id[waiting[0]]
    nodes = [
        replace(
            one,
            free=tuple(slot for slot in (*one.free, *one.held) if (one.id, slot.name) not in taken),
            held=tuple(slot for slot in one.free if (one.id, slot.name) in taken),
        )
        for one in world.nodes
    ]
    after = plan(replace(world, nodes=nodes, queue=[first], holders=(), used={}))
    ahead = {one.request for one in decided.placements}
    if not ahead and "accept" not in decided.waiting[first.id].message:
        assert [one.request for one in after.placements] == [first.id]


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_preempted_slots_suffice(world: Snapshot) -> None:
    decided = plan(world)
    if not decided.preemptions:
        return
    (name,) = {one.request for one in decided.preemptions}
    gone = {one.holder for one in decided.preemptions} | {one.id for one in world.holders if one.leaving}
    free = {(one.node, slot) for one in world.holders if one.id in gone for slot in one.slots}
    taken = {(where, slot) for one in decided.placements for where, slots in one.parts for slot in slots}
    nodes = []
    for one in world.nodes:
        slots = (*one.free, *one.held)
        open_slots = {slot.name for slot in one.free if (one.id, slot.name) not in taken}
        open_slots |= {slot.name for slot in one.held if (one.id, slot.name) in free}
        nodes.append(
            replace(
                one,
                free=tuple(slot for slot in slots if slot.name in open_slots),
                held=tuple(slot for slot in slots if slot.name not in open_slots),
            )
        )
    queue = [one for one in world.queue if one.id == name]
    after = plan(replace(world, nodes=nodes, queue=queue, holders=()))
    assert [one.request for one in after.placements] == [name]
