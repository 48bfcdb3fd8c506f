"""Backfill behind a reservation: who may pass a run that waits, and that it is not delayed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.fleet.backfill import GRACE
from control_plane.fleet.scheduler import plan
from control_plane.fleet.snapshot import (
    Holder,
    HolderKind,
    NodeSnapshot,
    Plan,
    Request,
    SlotSnapshot,
    Snapshot,
    TeamQuota,
    WaitCode,
)
from tests.unit.control_plane.fleet.test_scheduler import (
    NOW,
    assert_preemption_suffices,
    node,
    placed,
    request,
    snapshot,
    worlds,
)
from tests.unit.control_plane.fleet.test_scheduler_over_time import CYCLE, Simulation


def predicted(name: str, slots: int, seconds: float | None, *, age: int = 0) -> Request:
    return replace(request(name, slots, age=age), predicted_seconds=seconds)


def busy(free: int, total: int, ends: list[float], queue: list[Request]) -> Snapshot:
    """One node whose held slots become free after so many seconds."""
    one = node("n", free, total)
    free_at = {("n", slot.name): NOW + timedelta(seconds=at) for slot, at in zip(one.held, ends, strict=True)}
    return replace(snapshot([one], queue, {"red": total - free}), free_at=free_at)


HEAD = predicted("head", 4, 1000, age=9)


def test_a_run_that_ends_before_the_reserved_start_may_use_the_reserved_node() -> None:
    world = busy(2, 4, [600, 600], [HEAD, predicted("short", 2, 600), predicted("long", 2, 601)])
    decided = plan(world)
    assert {one.request for one in decided.placements} == {"short"}
    assert decided.waiting["head"].code is WaitCode.CAPACITY
    assert decided.promises == {"head": NOW + timedelta(seconds=600)}


def test_a_longer_run_and_one_of_unknown_length_wait_behind() -> None:
    decided = plan(busy(2, 4, [600, 600], [HEAD, predicted("long", 1, 601), predicted("unknown", 1, None)]))
    assert not decided.placements
    assert {wait.code for wait in decided.waiting.values()} == {WaitCode.CAPACITY, WaitCode.BEHIND}


def test_a_run_of_any_length_may_have_slots_that_the_head_will_not_need() -> None:
    world = busy(
        3, 8, [600] * 3 + [900] * 2, [HEAD, predicted("long", 2, 99_999), predicted("more", 1, None)]
    )
    decided = plan(world)
    assert {one.request for one in decided.placements} == {"long"}, (
        "at 600 s: 6 slots, of which 4 are the head's"
    )


def test_without_a_predicted_end_of_the_runs_on_the_node_nothing_passes() -> None:
    one = node("n", 2, 4)
    world = snapshot([one], [HEAD, predicted("short", 1, 1)], {"red": 2})
    assert placed(world) == {}
    partly = replace(world, free_at={("n", "cpu-2"): NOW + timedelta(seconds=60)})
    assert placed(partly) == {}
    assert plan(partly).promises == {}


def test_after_a_broken_promise_nothing_passes_the_head_any_more() -> None:
    late = replace(HEAD, promised_start=NOW - GRACE)
    world = busy(2, 4, [600, 600], [late, predicted("short", 2, 60)])
    assert placed(world) == {"short": "n"}
    later = replace(
        world, queue=[replace(late, promised_start=NOW - GRACE - timedelta(seconds=1)), *world.queue[1:]]
    )
    assert placed(later) == {}
    assert plan(later).promises["head"] == NOW - GRACE - timedelta(seconds=1), "the earliest promise counts"


def test_the_node_that_is_predicted_to_be_free_first_is_reserved() -> None:
    nearly, soon = node("nearly", 3, 4), node("soon", 0, 4)
    free_at = {("nearly", nearly.held[0].name): NOW + timedelta(hours=20)}
    free_at |= {("soon", slot.name): NOW + timedelta(minutes=1) for slot in soon.held}
    world = replace(
        snapshot([nearly, soon], [HEAD, predicted("long", 3, 36_000)], {"red": 5}), free_at=free_at
    )
    decided = plan(world)
    assert decided.promises["head"] == NOW + timedelta(minutes=1)
    assert placed(world) == {"long": "nearly"}


def test_nothing_passes_a_head_that_preempts_for_its_slots() -> None:
    world = busy(2, 4, [600, 600], [predicted("own", 4, 60), predicted("short", 2, 60)])
    one = world.nodes[0]
    borrower = Holder("b", "blue", "n", tuple(slot.name for slot in one.held), False, HolderKind.RUN)
    world = replace(
        world, used={"blue": 2}, quotas={"red": TeamQuota(nominal=4)}, holders=[borrower],
        queue=[replace(world.queue[0], submitted_at=NOW - timedelta(seconds=9)), world.queue[1]],
    )  # fmt: skip
    decided = plan(world)
    # "short" fits the nominal quota beside nothing else: it is queued after the head and borrows.
    assert [one.holder for one in decided.preemptions] == ["b"]
    assert not decided.placements


@st.composite
def predicted_worlds(draw: st.DrawFn) -> Snapshot:
    world = draw(worlds())
    times = st.one_of(st.none(), st.sampled_from([0.0, 60.0, 600.0, 3600.0]))
    free_at = {}
    for one in world.nodes:
        for slot in one.held:
            seconds = draw(times)
            if seconds is not None:
                free_at[one.id, slot.name] = NOW + timedelta(seconds=seconds)
    queue = [
        replace(
            one, predicted_seconds=draw(times),
            promised_start=draw(st.sampled_from([None, NOW, NOW - 2 * GRACE])),
        )
        for one in world.queue
    ]  # fmt: skip
    return replace(world, free_at=free_at, queue=queue)


@settings(max_examples=150, deadline=None)
@given(predicted_worlds())
def test_a_plan_with_predictions_is_sound_and_its_preemptions_suffice(world: Snapshot) -> None:
    decided = plan(world)
    backwards = replace(world, queue=world.queue[::-1], nodes=world.nodes[::-1], holders=world.holders[::-1])
    assert decided == plan(backwards), "deterministic"
    free = {(one.id, slot.name) for one in world.nodes if one.accepts for slot in one.free}
    given_out = [(one.node, slot) for one in decided.placements for slot in one.slots]
    assert len(given_out) == len(set(given_out)) and set(given_out) <= free
    assert decided.promises.keys() <= decided.waiting.keys()
    assert_preemption_suffices(world)


@st.composite
def one_node(draw: st.DrawFn) -> Snapshot:
    total = draw(st.integers(2, 8))
    free = draw(st.integers(0, total - 1))
    ends = draw(
        st.lists(st.sampled_from([60.0, 600.0, 3600.0]), min_size=total - free, max_size=total - free)
    )
    queue = [predicted("head", total, 60, age=99)]
    for index in range(draw(st.integers(1, 6))):
        seconds = draw(st.one_of(st.none(), st.sampled_from([30.0, 60.0, 600.0, 9999.0])))
        queue.append(predicted(f"r{index}", draw(st.integers(1, 4)), seconds, age=50 - index))
    return busy(free, total, ends, queue)


@settings(max_examples=200, deadline=None)
@given(one_node())
def test_slots_stay_idle_behind_the_head_only_where_the_predictions_forbid_more(world: Snapshot) -> None:
    """The head needs the whole node, so a run may pass it exactly if it ends before the reserved start."""
    decided = plan(world)
    start = decided.promises["head"]
    assert start == max(world.free_at.values())
    items = {one.id: one for one in world.queue}
    left = len(world.nodes[0].free) - sum(len(one.slots) for one in decided.placements)
    for one in decided.placements:
        seconds = items[one.request].predicted_seconds
        assert seconds is not None and NOW + timedelta(seconds=seconds) <= start
    for name in decided.waiting:
        seconds = items[name].predicted_seconds
        fits = seconds is not None and NOW + timedelta(seconds=seconds) <= start
        assert name == "head" or not fits or items[name].slots > left, f"{name} could run before the head"


@dataclass
class Predicting(Simulation):
    """Each run has a predicted number of cycles, and each waiting run the earliest start that it was promised."""

    guess: dict[str, int | None] = field(default_factory=dict)
    promises: dict[str, datetime] = field(default_factory=dict)
    started: dict[str, datetime] = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        world = super().snapshot()
        free_at = {}
        for name, one in self.active.items():
            cycles = self.guess[name]
            if cycles is not None:
                ends = NOW + (one.since + cycles) * CYCLE
                free_at |= {(one.node, slot): max(ends, world.now) for slot in one.slots}
        queue = []
        for waits in world.queue:
            cycles = self.guess[waits.id]
            seconds = None if cycles is None else cycles * CYCLE.total_seconds()
            queue.append(
                replace(waits, predicted_seconds=seconds, promised_start=self.promises.get(waits.id))
            )
        return replace(world, free_at=free_at, queue=queue)

    def step(self) -> Plan:
        now = NOW + self.cycle * CYCLE
        decided = super().step()
        for placement in decided.placements:
            self.started.setdefault(placement.request, now)
        self.promises |= decided.promises
        return decided


@st.composite
def pools(draw: st.DrawFn, *, exact: bool) -> Predicting:
    sizes = draw(st.lists(st.integers(2, 4), min_size=1, max_size=2))
    nodes = [
        NodeSnapshot(f"n{index}", f"n{index}", tuple(SlotSnapshot(f"cpu-{n}") for n in range(size)), (), True)
        for index, size in enumerate(sizes)
    ]
    world = Predicting(nodes, {}, {}, {})
    for index in range(draw(st.integers(2, 10))):
        name, work = f"r{index}", draw(st.integers(1, 8))
        world.queue[name] = Request(
            name, name, "red", 500, draw(st.integers(1, max(sizes))), NOW + index * timedelta(seconds=1)
        )
        world.work[name] = work
        world.guess[name] = work if exact else draw(st.one_of(st.none(), st.integers(1, 8)))
    return world


@settings(max_examples=150, deadline=None)
@given(pools(exact=True))
def test_with_true_predictions_the_head_starts_by_the_time_that_it_was_promised(world: Predicting) -> None:
    """Runs behind the head are promised a start as well, but the head may take their slots."""
    first: dict[str, datetime] = {}
    while world.queue or world.active:
        decided = world.step()
        for head in list(decided.waiting)[:1]:
            if head in decided.promises:
                first.setdefault(head, decided.promises[head])
        assert world.cycle < 500
    for name, at in first.items():
        assert world.started[name] <= at, f"{name} was promised {at}"


@settings(max_examples=150, deadline=None)
@given(pools(exact=False))
def test_with_wrong_predictions_every_run_still_ends(world: Predicting) -> None:
    bound = sum(world.work.values()) + 20 + int(GRACE / CYCLE) * len(world.queue)
    while world.queue or world.active:
        world.step()
        assert world.cycle <= bound


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 4), st.integers(2, 4))
def test_a_head_starts_though_short_looking_runs_keep_coming_and_always_take_longer(
    size: int, work: int
) -> None:
    """Each run of one slot is predicted to end in the next cycle, and takes longer."""
    slots = tuple(SlotSnapshot(f"cpu-{n}") for n in range(size))
    world = Predicting([NodeSnapshot("n", "n", slots, (), True)], {}, {}, {})
    bound = int(GRACE / CYCLE) + 6 + 4 * work
    for number in range(bound):
        names = [f"small-{number}-{index}" for index in range(2)] + ["big"] * (number == 3)
        for name in names:
            wanted = size if name == "big" else 1
            world.queue[name] = Request(
                name, name, "red", 500 if name != "big" else 501, wanted, NOW + number * CYCLE
            )
            world.work[name], world.guess[name] = work, 1
        world.step()
    assert "big" not in world.queue
