"""Which slots are taken back for a run that waits: as few as it takes, and none in vain."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from control_plane.fleet.scheduler import plan
from control_plane.fleet.snapshot import (
    Holder,
    HolderKind,
    NodeSnapshot,
    Request,
    SlotSnapshot,
    Snapshot,
    TeamQuota,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def cpus(count: int) -> tuple[SlotSnapshot, ...]:
    return tuple(SlotSnapshot(f"s{n}") for n in range(count))


def request(name: str, slots: int, *, priority: int = 500, team: str = "red") -> Request:
    return Request(
        id=name,
        name=name,
        team=team,
        priority=priority,
        slots=slots,
        submitted_at=NOW,
        preemptible=not priority,
    )


def holder(
    run: str, node: str = "n1", *, slots: tuple[str, ...] = ("s0",), leaving: bool = False, team: str = "red"
) -> Holder:
    return Holder(id=run, team=team, node=node, slots=slots, leaving=leaving)


def decide(
    queue: list[Request],
    holders: list[Holder],
    *,
    free: dict[str, int],
    total: int = 4,
    limit: int | None = None,
) -> tuple[str, ...]:
    """Each of the holders has a slot of its own, s0 the first of them, s1 the second."""
    holders = [replace(one, slots=(f"s{number}",)) for number, one in enumerate(holders)]
    nodes = [
        NodeSnapshot(name, name, cpus(total)[total - count :], cpus(total)[: total - count], True)
        for name, count in free.items()
    ]
    used = {"red": sum(len(one.slots) for one in holders if one.team == "red")}
    snapshot = Snapshot(now=NOW, nodes=nodes, queue=queue, used=used, quotas={"red": TeamQuota(limit=limit)})
    return victims(snapshot, holders)


def victims(snapshot: Snapshot, holders: list[Holder]) -> tuple[str, ...]:
    return tuple(one.holder for one in plan(replace(snapshot, holders=holders)).preemptions)


@pytest.mark.parametrize(
    ("queue", "holders", "free", "ended"),
    [
        ([request("a", 1)], [holder("p")], {"n1": 0}, ("p",)),
        ([request("a", 1)], [holder("p")], {"n1": 1}, ()),  # it fits as it is
        ([request("a", 2)], [holder("p"), holder("q")], {"n1": 1}, ("p",)),  # one is enough
        ([request("a", 2)], [holder("p"), holder("q", "n2"), holder("r", "n2")], {"n1": 1, "n2": 0}, ("p",)),
        ([request("a", 3)], [holder("p")], {"n1": 1}, ()),  # in vain
        ([request("a", 9)], [holder("p")], {"n1": 0}, ()),  # no node is that large
        ([request("a", 1)], [holder("p", leaving=True)], {"n1": 0}, ()),  # its slot comes free already
        ([request("p2", 1, priority=0)], [holder("p")], {"n1": 0}, ()),  # playgrounds take from nobody
        ([request("big", 9), request("a", 1)], [holder("p")], {"n1": 0}, ("p",)),
    ],
)
def test_who_goes(
    queue: list[Request], holders: list[Holder], free: dict[str, int], ended: tuple[str, ...]
) -> None:
    assert decide(queue, holders, free=free) == ended


def test_a_team_at_its_limit_takes_from_nobody_else_but_from_its_own() -> None:
    others = [holder("p", team="blue")]
    assert decide([request("a", 1)], others, free={"n1": 0}, limit=0) == ()
    assert decide([request("a", 1)], [holder("p")], free={"n1": 0}, limit=1) == ("p",)
    assert decide([request("a", 1)], [holder("p")], free={"n1": 1}, limit=1) == ("p",), (
        "it fits but for the limit"
    )
    assert decide([request("a", 1)], [holder("p", leaving=True)], free={"n1": 1}, limit=1) == ()
    assert decide([request("a", 1)], [holder("p")], free={"n1": 1}, limit=0) == (), "in vain"
    elsewhere = [holder("p", "n2"), holder("q", team="blue")]
    assert decide([request("a", 1)], elsewhere, free={"n1": 0, "n2": 0}, limit=1) == ("p",)


@pytest.mark.parametrize(
    ("only_on_n2", "tells"),
    [
        ({"model_path": "/models/big"}, {"model_roots": ("/models",)}),
        ({"isolated": True}, {"isolates_jobs": True}),
    ],
)
def test_a_node_on_which_it_may_not_be_gives_nothing_and_is_not_waited_for(
    only_on_n2: dict[str, Any], tells: dict[str, Any]
) -> None:
    n1 = NodeSnapshot("n1", "n1", (), cpus(4), True, model_roots=())
    n2 = replace(n1, id="n2", name="n2", **tells)
    waits = replace(request("a", 1), **only_on_n2)
    snapshot = Snapshot(now=NOW, nodes=[n1, n2], queue=[waits], used={})
    on_n1, on_n2 = [holder("p", "n1")], [holder("q", "n2")]
    assert victims(snapshot, on_n1) == (), "in vain"
    free = replace(snapshot, nodes=[replace(n1, free=cpus(1)), n2])
    assert victims(free, on_n2) == ("q",), "what is free is elsewhere"


def test_nobody_goes_for_a_run_that_their_slots_do_not_suit() -> None:
    nodes = [NodeSnapshot("n1", "n1", (), cpus(2), True)]
    queue = [replace(request("a", 1), device="cuda")]
    snapshot = Snapshot(now=NOW, nodes=nodes, queue=queue, used={"red": 1})
    assert victims(snapshot, [holder("p")]) == ()


def test_nobody_goes_for_a_team_that_may_not_use_the_pool() -> None:
    nodes = [NodeSnapshot("n1", "n1", (), cpus(2), True)]
    snapshot = Snapshot(now=NOW, nodes=nodes, queue=[request("a", 1)], used={}, teams=frozenset({"blue"}))
    assert victims(snapshot, [holder("p", team="blue")]) == ()


def gpus(*names: str) -> tuple[SlotSnapshot, ...]:
    return tuple(SlotSnapshot(name, "cuda", 2**33) for name in names)


def two_ranks(slots: int = 2) -> Request:
    return replace(request("a", slots), trainer_ranks=2, device="cuda")


@pytest.mark.parametrize(
    ("asked", "free", "held", "holders", "ended"),
    [
        # One GPU of two slots is no room for two ranks, though its slots are enough.
        (two_ranks(), ["A/0"], ["A/1"], [("p", "A/1")], ()),
        # So the holder on the other GPU goes, not the one beside the free slot.
        (two_ranks(), ["A/0"], ["A/1", "B/0", "B/1"], [("p", "A/1"), ("q", "B/0")], ("q",)),
        (two_ranks(), [], ["A/0", "A/1", "B/0"], [("p", "A/0"), ("q", "A/1"), ("r", "B/0")], ("p", "r")),
        (
            two_ranks(3),
            [],
            ["A/0", "A/1", "B/0"],
            [("p", "A/0"), ("q", "A/1"), ("r", "B/0")],
            ("p", "q", "r"),
        ),
        # What does not suit is not counted: the CPU slot stays with its holder.
        (two_ranks(), ["A/0"], ["s0", "B/0"], [("p", "s0"), ("q", "B/0")], ("q",)),
    ],
    ids=["in_vain", "the_other_gpu", "one_of_each", "all_of_them", "the_suiting_one"],
)
def test_ranks_need_a_gpu_each(
    asked: Request, free: list[str], held: list[str], holders: list[tuple[str, str]], ended: tuple[str, ...]
) -> None:
    of_cpu = tuple(SlotSnapshot(name) for name in held if name.startswith("s"))
    node = NodeSnapshot(
        "n1", "n1", gpus(*free), (*of_cpu, *gpus(*(n for n in held if not n.startswith("s")))), True
    )
    snapshot = Snapshot(now=NOW, nodes=[node], queue=[asked], used={})
    yielding = [holder(name, slots=(slot,)) for name, slot in holders]
    assert victims(snapshot, yielding) == ended


def world(*runs: Holder, waits: Request, nominal: int = 2, total: int = 4) -> Snapshot:
    """One node, full of blue's runs; red has a nominal quota."""
    taken = {name for run in runs for name in run.slots}
    slots = cpus(total)
    node = NodeSnapshot(
        "n1", "n1", tuple(one for one in slots if one.name not in taken),
        tuple(one for one in slots if one.name in taken), True,
    )  # fmt: skip
    quotas = {"red": TeamQuota(nominal=nominal), "blue": TeamQuota(nominal=1)}
    return Snapshot(NOW, [node], [waits], {"blue": len(taken)}, quotas, holders=runs)


def blue(name: str, *slots: str, lost: float = 0.0, **changes: Any) -> Holder:
    return Holder(name, "blue", "n1", slots, False, HolderKind.RUN, lost_gpu_seconds=lost, **changes)


@pytest.mark.parametrize(
    ("runs", "slots", "preempted"),
    [
        ([blue("a", "s0", lost=50), blue("b", "s1", lost=5), blue("c", "s2", "s3", lost=9)], 1, ("b",)),
        ([blue("a", "s0", lost=50), blue("b", "s1", lost=5), blue("c", "s2", "s3", lost=9)], 2, ("c",)),
        ([blue("a", "s0", "s1", lost=1, protected=True), blue("c", "s2", "s3", lost=9)], 2, ("c",)),
        ([blue("a", "s0", "s1", protected=True), blue("c", "s2", "s3", protected=True)], 2, ()),
        ([blue("a", "s0"), blue("b", "s1")], 1, ()),  # slots are free
        ([blue("a", "s0", "s1", "s2", "s3")], 3, ()),  # beyond red's own quota
        ([replace(blue("a", "s0", "s1"), leaving=True), blue("b", "s2", "s3")], 2, ()),  # it leaves already
    ],
    ids=[
        "fewest_lost",
        "one_of_two_slots",
        "minimum_runtime",
        "all_protected",
        "free",
        "borrower",
        "leaving",
    ],
)
def test_a_run_within_its_nominal_quota_reclaims_slots_of_runs_that_borrow(
    runs: list[Holder], slots: int, preempted: tuple[str, ...]
) -> None:
    snapshot = world(*runs, waits=request("own", slots))
    assert tuple(one.holder for one in plan(snapshot).preemptions) == preempted


def test_a_team_keeps_the_runs_of_its_own_nominal_quota() -> None:
    runs = [blue("a", "s0", lost=1), blue("b", "s1", lost=2)]
    full = world(*runs, waits=request("own", 2, team="red"), total=2)
    assert [one.holder for one in plan(full).preemptions] == [], "blue may keep one of its two"
    one = world(*runs, waits=request("own", 1, team="red"), total=2)
    assert [(victim.holder, victim.request) for victim in plan(one).preemptions] == [("a", "own")]


def test_lent_engines_go_before_playgrounds_and_these_before_runs() -> None:
    engine = replace(blue("engine", "s0"), kind=HolderKind.ENGINE)
    playground = replace(blue("playground", "s1"), kind=HolderKind.PLAYGROUND)
    runs = [engine, playground, blue("run", "s2", "s3")]
    for slots, gone in [(1, {"engine"}), (2, {"engine", "playground"})]:
        assert {one.holder for one in plan(world(*runs, waits=request("own", slots))).preemptions} == gone
    three = plan(world(*runs, waits=request("own", 3), nominal=3)).preemptions
    assert "run" in {one.holder for one in three} and len(three) == 2


def test_a_preempted_run_does_not_preempt_in_return() -> None:
    """Red's run started in place of blue's; blue's waits and stays beyond its nominal quota."""
    red = Holder("own", "red", "n1", ("s0", "s1"), False, HolderKind.RUN)
    other = blue("b", "s2", "s3")
    snapshot = replace(world(red, other, waits=request("a", 2, team="blue")), used={"red": 2, "blue": 2})
    assert not plan(snapshot).preemptions
