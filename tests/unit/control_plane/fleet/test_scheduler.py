"""The scheduler: no database, no clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.fleet.fair_order import sort_queue
from control_plane.fleet.scheduler import plan
from control_plane.fleet.snapshot import (
    Holder,
    HolderKind,
    LoanRequest,
    NodeSnapshot,
    ProjectQuota,
    Request,
    SlotSnapshot,
    Snapshot,
    TeamQuota,
    Wait,
    WaitCode,
)
from oolong import gpu_slots

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def node(
    name: str, free: int, total: int | None = None, *, accepts: bool = True, state: str = ""
) -> NodeSnapshot:
    slots = cpus(free if total is None else total)
    return NodeSnapshot(name, name, slots[:free], slots[free:], accepts, state)


def cpus(count: int) -> tuple[SlotSnapshot, ...]:
    return tuple(SlotSnapshot(f"cpu-{index}") for index in range(count))


def request(name: str, slots: int = 1, *, priority: int = 500, age: int = 0, team: str = "red") -> Request:
    return Request(name, name, team, priority, slots, NOW - timedelta(seconds=age))


def snapshot(
    nodes: list[NodeSnapshot], queue: list[Request], used: dict[str, int] | None = None, **limits: int
) -> Snapshot:
    return Snapshot(
        NOW, nodes, queue, used or {}, {team: TeamQuota(limit=limit) for team, limit in limits.items()}
    )


def placed(snap: Snapshot) -> dict[str, str]:
    return {placement.request: placement.node for placement in plan(snap).placements}


def test_higher_priority_goes_first_then_who_came_first() -> None:
    queue = [request("late"), request("early", age=9), request("urgent", priority=900)]
    assert [item.id for item in sort_queue(queue)] == ["urgent", "early", "late"]
    assert placed(snapshot([node("n", 2)], queue)) == {"urgent": "n", "early": "n"}


def test_a_priority_that_operators_give_moves_runs_of_their_own_team_alone() -> None:
    queue = [
        request("blue-1", age=9, team="blue"), request("red-1", age=8), request("blue-2", age=7, team="blue"),
        request("red-2", age=6), request("red-urgent", age=1, priority=1000),
        request("blue-low", team="blue", priority=499),
    ]  # fmt: skip
    assert [item.id for item in sort_queue(queue)] == [
        "blue-1", "red-urgent", "blue-2", "red-1", "red-2", "blue-low",
    ]  # fmt: skip


def test_teams_take_turns_by_the_slots_that_they_borrow() -> None:
    queue = [request(f"red-{n}", age=9 - n) for n in range(3)] + [request("blue", team="blue")]
    assert [item.id for item in sort_queue(queue)] == ["red-0", "blue", "red-1", "red-2"]
    assert sort_queue(queue, held={"red": 1})[0].id == "blue"
    own = {"red": TeamQuota(nominal=2)}
    assert [item.id for item in sort_queue(queue, quotas=own, held={"red": 1})] == [
        "red-0", "red-1", "blue", "red-2",
    ]  # fmt: skip


def test_a_nominal_quota_goes_before_priority_and_playgrounds_come_last() -> None:
    playground = replace(request("playground", age=99), preemptible=True)
    queue = [request("urgent", priority=1000), request("own", priority=1, team="blue"), playground]
    order = sort_queue(queue, quotas={"blue": TeamQuota(nominal=1), "red": TeamQuota()})
    assert [item.id for item in order] == ["own", "urgent", "playground"]


def test_equal_teams_go_by_their_use_of_the_past_then_by_age() -> None:
    queue = [request("red", age=9), request("blue", team="blue")]
    assert sort_queue(queue)[0].id == "red"
    assert sort_queue(queue, slot_hours={"red": 2.0, "blue": 1.0})[0].id == "blue"


def test_a_run_that_cannot_start_costs_its_team_no_turn() -> None:
    queue = [request("huge", 9, age=9), request("red", age=8), request("blue", age=7, team="blue")]
    decided = plan(snapshot([node("n", 1)], queue))
    assert [placement.request for placement in decided.placements] == ["red"]


def test_idle_slots_that_a_team_does_not_lend_stay_idle() -> None:
    quotas = {"blue": TeamQuota(nominal=3, lending_limit=1)}
    world = replace(snapshot([node("n", 4)], [request("run", 3)]), quotas=quotas)
    assert plan(world).waiting["run"] == Wait(
        WaitCode.NOT_LENT,
        "needs 3 slots beyond the team's nominal quota; of 4 that are idle, other teams do not lend 2",
    )
    assert placed(replace(world, queue=[request("run", 2)])) == {"run": "n"}
    assert placed(replace(world, queue=[request("own", 3, team="blue")])) == {"own": "n"}


def test_a_gang_is_placed_whole_on_one_node_or_waits() -> None:
    decided = plan(snapshot([node("a", 1, 4), node("b", 1, 1)], [request("gang", 2)]))
    assert not decided.placements
    assert decided.waiting["gang"].message == "needs 2 slots on one node; 1 of 4 are free on a"
    alone = plan(snapshot([node("a", 0, 4)], [request("alone", 1)]))
    assert alone.waiting["alone"].message == "needs 1 slot on one node; 0 of 4 are free on a"


def test_the_tightest_node_is_taken_so_that_big_holes_stay() -> None:
    assert placed(snapshot([node("big", 8), node("small", 2)], [request("run", 2)])) == {"run": "small"}


def test_a_run_larger_than_any_node_says_so_and_holds_nobody_up() -> None:
    decided = plan(snapshot([node("n", 2)], [request("huge", 5, priority=900), request("small", 2)]))
    assert decided.waiting["huge"].message == "needs 5 slots on one node; the largest node has 2"
    assert [placement.request for placement in decided.placements] == ["small"]


def test_a_small_run_may_not_starve_a_big_one_ahead_of_it() -> None:
    decided = plan(snapshot([node("n", 1, 2)], [request("big", 2, age=9), request("small", 1)]))
    assert not decided.placements
    assert "waits behind 'big'" in decided.waiting["small"].message
    assert decided.positions == {"big": 1, "small": 2}


def test_a_small_run_passes_where_it_takes_nothing_from_the_big_one() -> None:
    nodes = [node("kept", 3, 4), node("other", 1, 1)]
    decided = plan(snapshot(nodes, [request("big", 4, age=9), request("small", 1)]))
    assert [(placement.request, placement.node) for placement in decided.placements] == [("small", "other")]


def test_a_team_never_passes_its_limit() -> None:
    queue = [request("one", 2, age=2), request("two", 2, age=1)]
    decided = plan(snapshot([node("n", 8)], queue, {"red": 1}, red=4))
    assert [placement.request for placement in decided.placements] == ["one"]
    assert decided.waiting["two"].message == "the team's limit is 4 slots, 3 are in use and this run needs 2"


def test_a_cordoned_node_gets_nothing_and_the_reason_is_said() -> None:
    decided = plan(snapshot([node("n", 4, accepts=False, state="cordoned")], [request("run")]))
    assert decided.waiting["run"].message == "no node accepts jobs: n is cordoned"


def test_a_run_with_its_own_loss_goes_only_where_jobs_are_isolated() -> None:
    isolated = replace(node("isolated", 4), isolates_jobs=True)
    own_loss = replace(request("run"), isolated=True)
    assert [
        placement.node for placement in plan(snapshot([node("open", 1), isolated], [own_loss])).placements
    ] == ["isolated"]
    alone = plan(snapshot([node("open", 1)], [own_loss]))
    assert not alone.placements
    assert "no node isolates jobs" in alone.waiting["run"].message
    assert plan(snapshot([node("open", 1)], [request("run")])).placements, "the others need none"


GPUS = tuple(SlotSnapshot(f"gpu-{index}", "cuda", 80 * 2**30) for index in range(2))


def on(device: str = "cuda", gib: int = 0, slots: int = 1) -> Request:
    return Request("run", "run", "red", 500, slots, NOW, device=device, slot_memory_bytes=gib * 2**30)


def test_a_run_that_needs_a_gpu_never_lands_on_cpu_slots_and_says_what_the_pool_has() -> None:
    decided = plan(snapshot([node("n", 4)], [on("cuda")]))
    assert not decided.placements
    assert decided.waiting["run"].message == "needs cuda slots; pool default has cpu slots only"
    gpus = NodeSnapshot("g", "g", GPUS, (), True)
    assert placed(snapshot([node("n", 4), gpus], [on("cuda", slots=2)])) == {"run": "g"}
    assert placed(snapshot([gpus, node("n", 4)], [on("cpu")])) == {"run": "n"}


def test_a_slot_with_too_little_memory_does_not_count() -> None:
    gpus = NodeSnapshot("g", "g", GPUS, (), True)
    assert placed(snapshot([gpus], [on("cuda", 80)])) == {"run": "g"}
    decided = plan(snapshot([gpus], [on("cuda", 81)]))
    assert (
        decided.waiting["run"].message
        == "needs cuda slots of at least 81 GiB; the largest of pool default has 80 GiB"
    )


def test_a_run_that_names_a_gpu_model_uses_it_alone_and_says_what_the_pool_has() -> None:
    def gpus(model: str) -> tuple[SlotSnapshot, ...]:
        return tuple(SlotSnapshot(f"{model}-{index}", "cuda", 80 * 2**30, model) for index in range(2))

    nodes = [
        NodeSnapshot("a", "a", gpus("NVIDIA A100-SXM4-80GB"), (), True),
        NodeSnapshot("h", "h", gpus("NVIDIA H100 80GB HBM3"), (), True),
    ]
    wants = replace(on("cuda", 80), gpu_model="h100")
    assert placed(snapshot(nodes, [wants])) == {"run": "h"}
    assert plan(snapshot(nodes[:1], [wants])).waiting["run"].message == (
        "needs GPUs with 'h100' in their model name; pool default has NVIDIA A100-SXM4-80GB"
    )
    mixed = NodeSnapshot("m", "m", (*gpus("NVIDIA A100-SXM4-80GB"), *gpus("NVIDIA H100 80GB HBM3")), (), True)
    (found,) = plan(snapshot([mixed], [replace(wants, slots=2)])).placements
    assert found.slots == ("NVIDIA H100 80GB HBM3-0", "NVIDIA H100 80GB HBM3-1")


def test_only_the_slots_that_suit_are_taken_and_counted() -> None:
    mixed = NodeSnapshot("m", "m", (SlotSnapshot("cpu-0"), GPUS[0]), (GPUS[1],), True)
    decided = plan(snapshot([mixed], [on("cuda")]))
    assert [placement.slots for placement in decided.placements] == [("gpu-0",)]
    wanted = LoanRequest("attempt", "engines", on(""), ("m",), 9)
    (loan,) = plan(replace(snapshot([mixed], [on("cuda")]), loan_requests=[wanted])).loans
    assert loan.slots == (("m", "cpu-0"),), "the slot that is left"
    assert plan(snapshot([mixed], [on("cuda", slots=2)])).waiting["run"].message == (
        "needs 2 slots on one node; 1 of 2 are free on m"
    )
    assert plan(snapshot([mixed], [on("cuda", slots=3)])).waiting["run"].message == (
        "needs 3 slots on one node; the largest node has 2"
    )


def test_a_loan_prefers_the_first_node_and_takes_the_rest_from_the_others() -> None:
    one, two, three = node("a", 1), node("b", 2), node("c", 2)
    wanted = LoanRequest("attempt", "engines", on(""), ("b", "a", "c"), 4)
    (loan,) = plan(replace(snapshot([one, two, three], []), loan_requests=[wanted])).loans
    assert loan.slots == (("b", "cpu-0"), ("b", "cpu-1"), ("a", "cpu-0"), ("c", "cpu-0"))


def test_a_node_that_is_reserved_for_the_queue_lends_nothing() -> None:
    big = NodeSnapshot("big", "big", (SlotSnapshot("s-0"),), (SlotSnapshot("s-1"),), True)
    wanted = LoanRequest("attempt", "engines", on("", slots=1), ("small", "big"), 2)
    full = NodeSnapshot("small", "small", (), (SlotSnapshot("s-0"),), True)
    decided = plan(replace(snapshot([big, full], [on("", slots=2)]), loan_requests=[wanted]))
    assert decided.loans[0].slots == ()


def test_a_pool_without_a_healthy_slot_is_named() -> None:
    assert (
        plan(snapshot([node("n", 0)], [on("")])).waiting["run"].message
        == "no node of pool default has a healthy slot"
    )


def test_a_team_that_may_not_use_the_pool_waits_and_holds_nobody_up() -> None:
    queue = [request("first", 2, age=9, team="blue"), request("second", 2)]
    decided = plan(Snapshot(NOW, [node("n", 2)], queue, {}, pool="lab", teams=frozenset({"red"})))
    assert [placement.request for placement in decided.placements] == ["second"]
    assert decided.waiting["first"].message.startswith(
        "the team may not use pool lab; ask an installation admin"
    )


def test_an_empty_pool_is_named() -> None:
    assert plan(snapshot([], [request("run")])).waiting["run"].message == "the pool has no nodes"


def test_a_retry_waits_for_its_time() -> None:
    early = Request("run", "run", "red", 500, 1, NOW, not_before=NOW + timedelta(seconds=4))
    assert plan(snapshot([node("n", 1)], [early])).waiting["run"].message == (
        "retries at 00:00:04 UTC, because its last attempt ended early"
    )


PROJECTS = {"red-a": "red", "red-b": "red", "blue-a": "blue", "blue-b": "blue"}  # project → team


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    """Nodes whose held slots belong to ordinary runs or to borrowers, a queue of two teams with two projects each, and
    loan requests."""
    nodes, holders = [], []
    used, project_used = {"red": 0, "blue": 0}, dict.fromkeys(PROJECTS, 0)
    projects = st.sampled_from(sorted(PROJECTS))
    for index in range(draw(st.integers(0, 4))):
        name, free, held = f"n{index}", draw(st.integers(0, 4)), draw(st.integers(0, 3))
        accepts = draw(st.booleans())
        nodes.append(node(name, free, free + held, accepts=accepts, state="draining"))
        for slot in nodes[-1].held:
            project = draw(projects)
            used[PROJECTS[project]] += 1
            project_used[project] += 1
            if draw(st.booleans()):
                holders.append(
                    Holder(
                        f"{name}-{slot.name}", PROJECTS[project], name, (slot.name,), draw(st.booleans()),
                        draw(st.sampled_from(HolderKind)), draw(st.booleans()), draw(st.integers(0, 3)), project,
                    )
                )  # fmt: skip
    queue = []
    for index in range(draw(st.integers(0, 8))):
        project = draw(projects)
        waits = request(
            f"r{index}", draw(st.integers(1, 6)), priority=draw(st.sampled_from([0, 500, 1000])),
            age=draw(st.integers(0, 50)), team=PROJECTS[project],
        )  # fmt: skip
        later = draw(st.sampled_from([None, None, NOW + timedelta(seconds=1)]))
        queue.append(replace(waits, project=project, not_before=later, preemptible=draw(st.booleans())))
    loans = []
    for index, one in enumerate(nodes):
        project = draw(projects)
        borrower = replace(request(f"l{index}", team=PROJECTS[project]), project=project)
        others = draw(st.lists(st.sampled_from([other.id for other in nodes]), unique=True))
        where = tuple(dict.fromkeys([one.id, *others]))
        loans.append(LoanRequest(f"a{index}", "engines", borrower, where, draw(st.integers(1, 4))))
    numbers = st.one_of(st.none(), st.integers(0, 9))
    quotas = {team: TeamQuota(draw(st.integers(0, 6)), draw(numbers), draw(numbers)) for team in used}
    shares = {}
    for team, quota in quotas.items():
        first = draw(st.integers(0, quota.nominal))
        for project, most in ((f"{team}-a", first), (f"{team}-b", quota.nominal - first)):
            nominal = draw(st.integers(0, most))
            limit = draw(st.one_of(st.none(), st.integers(nominal, 9)))
            shares[project] = ProjectQuota(nominal, limit)
    hours = {team: draw(st.floats(0, 9)) for team in used}
    return Snapshot(
        NOW, nodes, queue, used, quotas, hours, holders=holders, loan_requests=loans, project_used=project_used,
        project_quotas=shares,
    )  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_any_plan_is_sound(world: Snapshot) -> None:
    decided = plan(world)
    backwards = replace(world, queue=world.queue[::-1], nodes=world.nodes[::-1], holders=world.holders[::-1])
    assert decided == plan(backwards), "deterministic"
    by_id = {item.id: item for item in world.queue}
    views = {view.id: view for view in world.nodes}

    given_out = [(placement.node, slot) for placement in decided.placements for slot in placement.slots]
    given_out += [slot for loan in decided.loans for slot in loan.slots]
    assert len(given_out) == len(set(given_out)), "no slot is given twice"
    for name, slot in given_out:
        assert views[name].accepts
        assert slot in {free.name for free in views[name].free}, "never above physical capacity"
    for placement in decided.placements:
        assert len(placement.slots) == by_id[placement.request].slots, "all or nothing"
    used = {**world.used, **world.project_used}
    granted = [(by_id[placement.request], placement.slots) for placement in decided.placements]
    granted += [(loan.request.request, loan.slots) for loan in decided.loans]
    for of, slots in granted:
        used[of.team] += len(slots)
        used[of.project] += len(slots)
    assert all(len(loan.slots) <= loan.request.slots for loan in decided.loans)
    for owner, quota in {**world.quotas, **world.project_quotas}.items():
        before = {**world.used, **world.project_used}[owner]
        assert quota.limit is None or used[owner] <= max(quota.limit, before), "never above a limit"

    # Every request is placed or waits with a reason, in the order of the queue.
    assert {placement.request for placement in decided.placements} | set(decided.waiting) == set(by_id)
    assert all(wait.message and "\n" not in wait.message for wait in decided.waiting.values())
    assert sorted(decided.positions.values()) == list(range(1, len(decided.waiting) + 1))
    for team in world.used:
        borrowed = Counter(
            one.project for one in world.holders if one.kind != HolderKind.RUN for _ in one.slots
        )
        held = {project: count - borrowed[project] for project, count in world.project_used.items()}
        cannot = (WaitCode.NEVER_FITS, WaitCode.DELAYED)
        stuck = {name for name, wait in decided.waiting.items() if wait.code in cannot}
        order = sort_queue(world.queue, project_quotas=world.project_quotas, project_held=held, stuck=stuck)
        own = [item.id for item in order if item.team == team and item.id in decided.waiting]
        assert own == sorted(own, key=lambda identity: decided.positions[identity])


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_no_slot_stays_free_that_the_first_waiting_run_could_use(world: Snapshot) -> None:
    decided = plan(world)
    taken = {(placement.node, slot) for placement in decided.placements for slot in placement.slots}
    by_id = {item.id: item for item in world.queue}
    for name, wait in decided.waiting.items():
        if wait.code in (WaitCode.CAPACITY, WaitCode.BEHIND):
            for view in world.nodes:
                free = [slot for slot in view.free if (view.id, slot.name) not in taken]
                assert not view.accepts or len(free) < by_id[name].slots
            return


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_borrowed_slots_leave_those_that_other_teams_do_not_lend(world: Snapshot) -> None:
    decided = plan(world)
    teams = {item.id: item.team for item in world.queue}
    leaves_at_once = [holder for holder in world.holders if holder.kind != HolderKind.RUN]
    held = dict(world.used)
    for holder in leaves_at_once:
        held[holder.team] -= len(holder.slots)
    accepting = {view.id: view for view in world.nodes if view.accepts}
    available = sum(len(view.free) for view in accepting.values())
    available += sum(len(holder.slots) for holder in leaves_at_once if holder.node in accepting)
    for placement in decided.placements:
        team = teams[placement.request]
        held[team] += len(placement.slots)
        available -= len(placement.slots)
    for placement in decided.placements:
        team = teams[placement.request]
        (other,) = set(world.quotas) - {team}
        unlent = max(0, world.quotas[other].never_lent - held[other])
        if held[team] - len(placement.slots) >= world.quotas[team].nominal and not any(
            teams[one.request] == other for one in decided.placements
        ):
            assert available >= unlent


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_runs_are_preempted_only_for_a_run_within_its_quota_and_only_of_those_who_hold_more(
    world: Snapshot,
) -> None:
    decided = plan(world)
    runs = {holder.id: holder for holder in world.holders if holder.kind == HolderKind.RUN}
    victims = [runs[one.holder] for one in decided.preemptions if one.holder in runs]
    items = {item.id: item for item in world.queue}
    held = {**world.used, **world.project_used}
    for holder in world.holders:
        for owner in (holder.team, holder.project):
            held[owner] -= len(holder.slots) if holder.kind != HolderKind.RUN or holder.leaving else 0
    for placement in decided.placements:
        for owner in (items[placement.request].team, items[placement.request].project):
            held[owner] += len(placement.slots)
    nominal = {owner: quota.nominal for owner, quota in {**world.quotas, **world.project_quotas}.items()}
    for one in decided.preemptions:
        if one.holder in runs:
            winner, victim = items[one.request], runs[one.holder]
            sibling = winner.team == victim.team and winner.project != victim.project
            owner = winner.project if sibling else winner.team
            assert held[owner] + winner.slots <= nominal[owner]
            assert sibling or winner.team != victim.team
    for victim in victims:
        assert not victim.protected and not victim.leaving
        winner = items[decided.preemptions[0].request]
        if victim.team != winner.team:
            assert held[victim.team] > nominal[victim.team]
        assert held[victim.project] > nominal[victim.project]
        held[victim.team] -= len(victim.slots)
        held[victim.project] -= len(victim.slots)


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_preemption_is_never_in_vain(world: Snapshot) -> None:
    """Once the placements are made and the chosen holders and those that leave already are gone, the request that
    preempts starts."""
    assert_preemption_suffices(world)


def test_preemption_is_not_in_vain_where_placed_runs_would_fit_otherwise_too() -> None:
    """Planned together with the run that preempts, the placed runs would take the slots that come free."""
    engines = [
        Holder(f"e{n}", "red", "a", (f"cpu-{n}",), False, HolderKind.ENGINE, project="red-a") for n in (0, 1)
    ]
    a = NodeSnapshot("a", "a", cpus(4)[2:3], (*cpus(4)[:2], cpus(4)[3]), True)
    queue = [request("one", age=9), request("two", 2, age=8), request("waits", 2, age=7)]
    queue = [replace(item, project="red-a") for item in queue]
    world = Snapshot(NOW, [a, node("b", 2, 4)], queue, {"red": 5}, holders=engines, project_used={"red-a": 5})
    assert {one.holder for one in plan(world).preemptions} == {"e0", "e1"}
    assert_preemption_suffices(world)


def assert_preemption_suffices(world: Snapshot) -> None:
    decided = plan(world)
    if not decided.preemptions:
        return
    (first,) = {one.request for one in decided.preemptions}
    items = {item.id: item for item in world.queue}
    assert not items[first].preemptible
    victims = {preemption.holder for preemption in decided.preemptions}
    gone = [holder for holder in world.holders if holder.leaving or holder.id in victims]
    freed = {(holder.node, slot) for holder in gone for slot in holder.slots}
    taken = {(one.node, slot) for one in decided.placements for slot in one.slots}
    used, project_used = dict(world.used), dict(world.project_used)
    for placement in decided.placements:
        used[items[placement.request].team] += len(placement.slots)
        project_used[items[placement.request].project] += len(placement.slots)
    for holder in gone:
        used[holder.team] -= len(holder.slots)
        project_used[holder.project] -= len(holder.slots)
    nodes = []
    for view in world.nodes:
        open_slots = {slot.name for slot in view.free if (view.id, slot.name) not in taken}
        open_slots |= {slot.name for slot in view.held if (view.id, slot.name) in freed}
        slots = (*view.free, *view.held)
        free = tuple(slot for slot in slots if slot.name in open_slots)
        held = tuple(slot for slot in slots if slot.name not in open_slots)
        nodes.append(replace(view, free=free, held=held))
    stay = [holder for holder in world.holders if holder not in gone]
    after = plan(
        replace(world, nodes=nodes, used=used, project_used=project_used, queue=[items[first]], holders=stay)
    )
    assert first in {placement.request for placement in after.placements}


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_preempted_runs_never_preempt_the_run_that_got_their_slots(world: Snapshot) -> None:
    decided = plan(world)
    victims = {one.holder for one in decided.preemptions if one.kind == HolderKind.RUN}
    if not victims:
        return
    items = {item.id: item for item in world.queue}
    winner = items[decided.preemptions[0].request]
    used, project_used = dict(world.used), dict(world.project_used)
    for placement in decided.placements:
        used[items[placement.request].team] += len(placement.slots)
        project_used[items[placement.request].project] += len(placement.slots)
    again = []
    for holder in world.holders:
        if holder.id in victims:
            waits = request(holder.id, len(holder.slots), team=holder.team)
            again.append(replace(waits, project=holder.project))
        if holder.leaving or holder.id in victims or holder.kind != HolderKind.RUN:
            used[holder.team] -= len(holder.slots)
            project_used[holder.project] -= len(holder.slots)
    used[winner.team] += winner.slots
    project_used[winner.project] += winner.slots
    full = [replace(view, free=(), held=(*view.free, *view.held)) for view in world.nodes]
    started = [
        Holder(
            winner.id, winner.team, view.id, tuple(slot.name for slot in view.held), False, HolderKind.RUN,
            project=winner.project,
        )
        for view in full
    ]  # fmt: skip
    after = plan(
        replace(
            world,
            nodes=full,
            used=used,
            project_used=project_used,
            queue=again,
            holders=started,
            loan_requests=(),
        )
    )
    assert not after.preemptions


def shared_gpus(count: int, *, shares: int = 2) -> tuple[SlotSnapshot, ...]:
    return tuple(
        SlotSnapshot(name, "cuda")
        for gpu in range(count)
        for name in gpu_slots.slot_names(f"GPU-{gpu}", shares)
    )


def test_trainer_and_engine_of_a_run_share_the_only_gpu() -> None:
    one = NodeSnapshot("n", "n", shared_gpus(1), (), True)
    (found,) = plan(snapshot([one], [request("run", 2)])).placements
    assert found.slots == ("GPU-0/0", "GPU-0/1")


def test_ranks_of_a_trainer_never_share_a_gpu_and_engines_take_what_is_left() -> None:
    two = NodeSnapshot("n", "n", shared_gpus(2), (), True)
    (found,) = plan(snapshot([two], [replace(request("run", 3), trainer_ranks=2)])).placements
    assert found.slots == ("GPU-0/0", "GPU-1/0", "GPU-0/1")


def test_an_engine_gets_a_gpu_of_its_own_where_there_is_one() -> None:
    two = NodeSnapshot("n", "n", shared_gpus(2), (), True)
    (found,) = plan(snapshot([two], [request("run", 2)])).placements
    assert found.slots == ("GPU-0/0", "GPU-1/0")


def test_more_ranks_than_gpus_wait_with_the_reason_and_hold_nobody_up() -> None:
    one = NodeSnapshot("n", "n", shared_gpus(1, shares=4), (), True)
    queue = [replace(request("wide", 3, priority=900), trainer_ranks=2), request("small", 2)]
    decided = plan(snapshot([one], queue))
    assert [found.request for found in decided.placements] == ["small"]
    assert decided.waiting["wide"].message == (
        "needs 2 GPUs on one node, one per rank of the trainer; no node has that many"
    )


def test_ranks_wait_for_a_second_gpu_while_both_slots_of_one_are_free() -> None:
    slots = shared_gpus(2)
    busy = NodeSnapshot("n", "n", slots[:2], slots[2:], True)
    decided = plan(snapshot([busy], [replace(request("wide", 2), trainer_ranks=2)]))
    assert not decided.placements and "n" in decided.waiting["wide"].message
