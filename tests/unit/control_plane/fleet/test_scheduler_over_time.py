"""The scheduler over many cycles: its plans are applied, runs end after a finite time, preempted runs wait again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.fleet.scheduler import plan
from control_plane.fleet.snapshot import (
    Holder,
    HolderKind,
    NodeSnapshot,
    Plan,
    ProjectQuota,
    Request,
    SlotSnapshot,
    Snapshot,
    TeamQuota,
    WaitCode,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CYCLE = timedelta(seconds=10)
PROJECTS = {"red-a": "red", "red-b": "red", "blue-a": "blue"}  # project → team
MIN_RUNTIME = 2  # cycles


@dataclass
class Active:
    request: Request
    node: str
    slots: tuple[str, ...]
    since: int  # cycle
    leaving: bool = False


@dataclass
class Simulation:
    """One pool. A run needs `work[id]` cycles on its slots; a preempted run frees its slots a cycle later and continues
    where it was."""

    nodes: list[NodeSnapshot]  # all slots free
    quotas: dict[str, TeamQuota]
    shares: dict[str, ProjectQuota]
    work: dict[str, int]
    queue: dict[str, Request] = field(default_factory=dict)
    active: dict[str, Active] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)  # run → cycle
    preempted: list[tuple[str, str]] = field(default_factory=list)  # victim, for whom
    cycle: int = 0

    def snapshot(self) -> Snapshot:
        taken = {(one.node, slot) for one in self.active.values() for slot in one.slots}
        nodes = [
            replace(
                node,
                free=tuple(slot for slot in node.free if (node.id, slot.name) not in taken),
                held=tuple(slot for slot in node.free if (node.id, slot.name) in taken),
            )
            for node in self.nodes
        ]
        used, project_used = Counter[str](), Counter[str]()
        for one in self.active.values():
            used[one.request.team] += len(one.slots)
            project_used[one.request.project] += len(one.slots)
        holders = [
            Holder(
                name, one.request.team, one.node, one.slots, one.leaving, HolderKind.RUN,
                self.cycle - one.since < MIN_RUNTIME, float(len(one.slots) * (self.cycle - one.since)),
                one.request.project,
            )
            for name, one in self.active.items()
        ]  # fmt: skip
        return Snapshot(
            NOW + self.cycle * CYCLE, nodes, list(self.queue.values()), used, self.quotas, holders=holders,
            project_used=project_used, project_quotas=self.shares,
        )  # fmt: skip

    def step(self) -> Plan:
        for name, one in list(self.active.items()):
            self.work[name] -= 0 if one.leaving else 1
            if one.leaving or self.work[name] <= 0:
                del self.active[name]
                if one.leaving:
                    self.queue[name] = one.request
                else:
                    self.ended[name] = self.cycle
        decided = plan(self.snapshot())
        for placement in decided.placements:
            request = self.queue.pop(placement.request)
            self.active[request.id] = Active(request, placement.node, placement.slots, self.cycle)
        for preemption in decided.preemptions:
            self.active[preemption.holder].leaving = True
            self.preempted.append((preemption.holder, preemption.request))
        self.cycle += 1
        return decided


@st.composite
def simulations(draw: st.DrawFn) -> Simulation:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    nodes = [
        NodeSnapshot(f"n{index}", f"n{index}", tuple(SlotSnapshot(f"cpu-{n}") for n in range(size)), (), True)
        for index, size in enumerate(sizes)
    ]
    total = sum(sizes)
    red = draw(st.integers(0, total))
    share = draw(st.integers(0, red))
    quotas = {
        "red": TeamQuota(red, draw(st.one_of(st.none(), st.integers(red, total)))),
        "blue": TeamQuota(
            draw(st.integers(0, total - red)), None, draw(st.one_of(st.none(), st.integers(0, 2)))
        ),
    }
    shares = {
        "red-a": ProjectQuota(share, draw(st.one_of(st.none(), st.integers(share, total)))),
        "red-b": ProjectQuota(draw(st.integers(0, red - share))),
    }
    queue, work = {}, {}
    for index in range(draw(st.integers(1, 10))):
        project = draw(st.sampled_from(sorted(PROJECTS)))
        name = f"r{index}"
        queue[name] = Request(
            name, name, PROJECTS[project], draw(st.sampled_from([300, 500, 800])), draw(st.integers(1, max(sizes))),
            NOW - timedelta(seconds=draw(st.integers(0, 50))), project=project,
        )  # fmt: skip
        work[name] = draw(st.integers(1, 8))
    return Simulation(nodes, quotas, shares, work, queue)


@settings(max_examples=300, deadline=None)
@given(simulations())
def test_every_run_that_can_ever_start_ends_within_a_bounded_number_of_cycles(world: Simulation) -> None:
    """The bound is what the runs need one after the other, where each is once preempted for each of the others."""
    count = len(world.queue)
    bound = sum(world.work.values()) + (count + 1) * count * (MIN_RUNTIME + 2)
    while world.cycle < bound and (world.queue or world.active):
        world.step()
    assert not world.active
    # What is left waits for a limit or a lending limit that it alone exceeds, not for others.
    for wait in plan(world.snapshot()).waiting.values():
        assert wait.code in (WaitCode.QUOTA, WaitCode.PROJECT_QUOTA, WaitCode.NOT_LENT)


@settings(max_examples=300, deadline=None)
@given(simulations())
def test_no_two_runs_preempt_each_other_in_turn(world: Simulation) -> None:
    for _ in range(200):
        if not (world.queue or world.active):
            break
        world.step()
    pairs = set(world.preempted)
    assert not {(victim, winner) for victim, winner in pairs if (winner, victim) in pairs}


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 4), st.integers(1, 5), st.integers(1, 3))
def test_a_big_run_starts_while_small_runs_keep_coming(size: int, work: int, per_cycle: int) -> None:
    """A node of `size` slots and an endless stream of runs of one slot of the same priority."""
    slots = tuple(SlotSnapshot(f"cpu-{n}") for n in range(size))
    world = Simulation([NodeSnapshot("n", "n", slots, (), True)], {}, {}, {})
    older = 6 * per_cycle  # runs that came before it or with it
    bound = 5 + -(-older * work // size) + 2 * work
    for number in range(bound + 1):
        for name in [f"small-{number}-{index}" for index in range(per_cycle)] + ["big"] * (number == 5):
            wanted = size if name == "big" else 1
            world.queue[name] = Request(name, name, "red", 500, wanted, NOW + number * CYCLE)
            world.work[name] = work
        world.step()
    assert "big" not in world.queue
