"""Quotas of a team's projects: in the scheduler, which is pure, and through the API and the command line."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from control_plane.accounts.models import Project
from control_plane.fleet import pools
from control_plane.fleet.models import Lease, Pool, ProjectQuota, Quota
from control_plane.fleet.scheduler import plan
from control_plane.fleet.snapshot import (
    Holder,
    HolderKind,
    LoanRequest,
    NodeSnapshot,
    Request,
    SlotSnapshot,
    Snapshot,
    TeamQuota,
    WaitCode,
)
from control_plane.fleet.snapshot import ProjectQuota as ProjectShare
from control_plane.runs.models import Run

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def run(name: str, project: str, slots: int = 1, *, age: int = 0, priority: int = 500) -> Request:
    team = project.partition("-")[0]
    return Request(name, name, team, priority, slots, NOW - timedelta(seconds=age), project=project)


def holder(name: str, project: str, *slots: str, node: str = "n", lost: float = 0.0) -> Holder:
    team = project.partition("-")[0]
    return Holder(name, team, node, slots, False, HolderKind.RUN, False, lost, project)


def world(
    *queue: Request,
    holders: tuple[Holder, ...] = (),
    total: int = 4,
    shares: dict[str, ProjectShare] | None = None,
    red: TeamQuota | None = None,
) -> Snapshot:
    """One node with `total` slots, of which the holders have theirs."""
    slots = [SlotSnapshot(f"s{index}") for index in range(total)]
    taken = {name for one in holders for name in one.slots}
    held = tuple(slot for slot in slots if slot.name in taken)
    node = NodeSnapshot("n", "n", tuple(slot for slot in slots if slot.name not in taken), held, True)
    used: dict[str, int] = {}
    project_used: dict[str, int] = {}
    for one in holders:
        used[one.team] = used.get(one.team, 0) + len(one.slots)
        project_used[one.project] = project_used.get(one.project, 0) + len(one.slots)
    return Snapshot(
        NOW, [node], queue, used, {"red": red or TeamQuota(nominal=4)}, holders=holders, project_used=project_used,
        project_quotas=shares or {},
    )  # fmt: skip


def test_a_project_never_passes_its_limit_and_other_projects_of_the_team_go_ahead() -> None:
    shares = {"red-a": ProjectShare(limit=2)}
    queue = [run("one", "red-a", 2, age=3), run("two", "red-a", 1, age=2), run("three", "red-b", 2, age=1)]
    decided = plan(world(*queue, shares=shares))
    assert [placement.request for placement in decided.placements] == ["one", "three"]
    wait = decided.waiting["two"]
    assert wait.code == WaitCode.PROJECT_QUOTA
    assert wait.message == "the project's limit is 2 slots, 2 are in use and this run needs 1"


def test_lent_slots_count_toward_the_limit_of_a_project() -> None:
    wanted = LoanRequest("a", "engines", run("r", "red-a"), ("n",), 4)
    busy = world(holders=(holder("r", "red-a", "s0"),), shares={"red-a": ProjectShare(limit=3)})
    (loan,) = plan(replace(busy, loan_requests=[wanted])).loans
    assert len(loan.slots) == 2


def test_a_project_within_its_nominal_quota_comes_before_a_sibling_of_higher_priority() -> None:
    queue = [run("urgent", "red-b", 3, priority=800), run("own", "red-a", 2)]
    decided = plan(world(*queue, shares={"red-a": ProjectShare(nominal=2)}))
    assert [placement.request for placement in decided.placements] == ["own"]
    assert [placement.request for placement in plan(world(*queue)).placements] == ["urgent"]


def test_a_project_reclaims_its_share_from_the_sibling_that_holds_more_and_loses_least() -> None:
    holders = (holder("x", "red-b", "s0", "s1", lost=9), holder("y", "red-b", "s2", "s3", lost=5))
    shares = {"red-a": ProjectShare(nominal=2), "red-b": ProjectShare(nominal=2)}
    decided = plan(world(run("own", "red-a", 2), holders=holders, shares=shares))
    assert [(one.holder, one.request) for one in decided.preemptions] == [("y", "own")]
    beyond = plan(world(run("own", "red-a", 3), holders=holders, shares=shares))
    assert not beyond.preemptions, "three are more than its share"
    own = {**shares, "red-b": ProjectShare(nominal=4)}
    assert not plan(world(run("own", "red-a", 2), holders=holders, shares=own)).preemptions


def test_a_project_reclaims_its_share_where_the_limit_of_the_team_is_reached() -> None:
    """The slots that come free are elsewhere: the sibling's run makes room under the limit."""
    holders = (holder("x", "red-b", "s0", "s1"), holder("y", "blue-a", "s2"))
    quota = TeamQuota(nominal=2, limit=2)
    shares = {"red-a": ProjectShare(nominal=1)}
    snapshot = world(run("own", "red-a"), holders=holders, shares=shares, red=quota)
    assert plan(snapshot).waiting["own"].code == WaitCode.QUOTA
    assert [one.holder for one in plan(snapshot).preemptions] == ["x"]


def test_a_project_reclaims_its_share_where_others_do_not_lend_more() -> None:
    holders = (holder("x", "red-b", "s0", "s1"),)
    snapshot = world(
        run("own", "red-a"),
        holders=holders,
        shares={"red-a": ProjectShare(nominal=1)},
        red=TeamQuota(nominal=2),
    )
    snapshot = replace(snapshot, quotas={**snapshot.quotas, "blue": TeamQuota(nominal=2, lending_limit=0)})
    assert plan(snapshot).waiting["own"].code == WaitCode.NOT_LENT
    assert [one.holder for one in plan(snapshot).preemptions] == ["x"]


def test_another_team_reclaims_first_from_projects_beyond_their_share() -> None:
    holders = (holder("mine", "red-a", "s0", "s1", lost=1), holder("more", "red-b", "s2", "s3", lost=9))
    snapshot = world(
        run("own", "blue-a", 2),
        holders=holders,
        shares={"red-a": ProjectShare(nominal=2)},
        red=TeamQuota(nominal=2),
    )
    snapshot = replace(snapshot, quotas={**snapshot.quotas, "blue": TeamQuota(nominal=2)})
    assert [one.holder for one in plan(snapshot).preemptions] == ["more"]


# --- API, command line, database


@pytest.fixture
def sibling(alice: Any) -> Project:
    return Project.objects.create(team=alice.project.team, name="second")


def address(alice: Any, project: Project) -> str:
    return f"/pools/default/teams/{alice.project.team_id}/projects/{project.pk}/quota"


def test_a_run_beyond_the_limit_of_its_project_waits_with_the_code(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    running = start(node(slots=4))
    held = Lease.objects.filter(released_at=None)
    assert {lease.project_id for lease in held} == {alice.project.pk}
    changed = alice.call("PUT", address(alice, alice.project), {"limit_slots": held.count()}).json()
    assert changed == {
        "project": {"id": alice.project.pk, "name": alice.project.name}, "nominal_slots": 0, "limit_slots": 2,
        "used_slots": 2,
    }  # fmt: skip
    waits = alice.run()
    tick()
    wait = alice.get(f"/runs/{waits['id']}/wait").json()
    assert (wait["code"], wait["message"]) == (
        "project_quota", "the project's limit is 2 slots, 2 are in use and this run needs 2",
    )  # fmt: skip
    assert alice.get("/pool").json()["project_quota"] == changed
    assert (
        alice.call("PUT", address(alice, alice.project), {"limit_slots": None}).json()["limit_slots"] is None
    )
    tick()
    assert alice.see(waits["id"])["status"] == "STARTING"
    assert alice.see(running["id"])["status"] == "RUNNING"


def test_a_project_gets_its_share_back_from_a_sibling_after_a_checkpoint(
    alice: Any, node: Any, start: Any, tick: Any, sibling: Project
) -> None:
    machine = node(slots=2)
    other = start(machine)
    Run.objects.filter(pk=other["id"]).update(project=sibling)
    Lease.objects.update(project=sibling)
    pool = Pool.objects.get()
    pools.set_quota(pool, alice.project.team, nominal_slots=2)
    own = alice.run()
    tick(601)
    assert not any(job.stop for attempt in machine.beat().attempts for job in attempt.jobs)
    pools.set_project_quota(pool, alice.project, nominal_slots=2)
    tick()
    assert [job.name for attempt in machine.beat().attempts for job in attempt.jobs if job.stop] == [
        "trainer"
    ]
    event = Run.objects.get(pk=other["id"]).events.get(kind="preempted")
    assert "within its nominal quota" in event.message
    assert alice.see(own["id"])["status"] == "QUEUED"


def test_shares_of_projects_fit_into_the_quota_of_their_team(
    alice: Any, person: Any, sibling: Project
) -> None:
    pool, team = Pool.objects.get(), f"/pools/default/teams/{alice.project.team_id}/quota"
    pools.set_quota(pool, alice.project.team, nominal_slots=4)
    assert alice.call("PUT", address(alice, sibling), {"nominal_slots": 3}).status_code == 200
    (error,) = alice.call("PUT", address(alice, alice.project), {"nominal_slots": 2}).json()["errors"]
    assert (error["pointer"], error["code"]) == ("/nominal_slots", "above_team")
    assert "nominal_slots 2 is above 1: the team has 4 nominal slots" in error["message"]
    (error,) = alice.call("PUT", team, {"nominal_slots": 2}).json()["errors"]
    assert (error["pointer"], error["code"]) == ("/nominal_slots", "below_projects")
    (error,) = alice.call("PUT", address(alice, sibling), {"limit_slots": 2}).json()["errors"]
    assert (error["pointer"], error["code"]) == ("/limit_slots", "below_nominal")
    assert alice.call("PUT", address(alice, sibling), {}).status_code == 422
    foreign = person("charlie", team="blue").project
    assert alice.call("PUT", address(alice, foreign), {"limit_slots": 2}).status_code == 404
    assert Quota.objects.get().nominal_slots == 4
    assert ProjectQuota.objects.get().nominal_slots == 3


def test_a_team_that_leaves_a_pool_leaves_no_quota_of_its_projects(alice: Any) -> None:
    pool = pools.create_pool("lab")
    pools.bind_team(pool, alice.project.team)
    pools.set_project_quota(pool, alice.project, limit_slots=3)
    pools.unbind_team(pool, alice.project.team)
    assert not ProjectQuota.objects.exists()


def test_the_command_sets_the_share_of_a_project(alice: Any, sibling: Project, oolong: Any) -> None:
    assert oolong("pool", "quota", "red", "--nominal", "4").code == 0
    done = oolong("pool", "quota", "red", "3", "--nominal", "2", "--project", "second")
    assert done.err == "project second has 2 of the team's nominal slots, at most 3 slots in pool default\n"
    assert oolong("pool", "quota", "red", "none", "--project", sibling.pk).code == 0
    quota = ProjectQuota.objects.get()
    assert (quota.project_id, quota.nominal_slots, quota.limit_slots) == (sibling.pk, 2, None)
    unknown = oolong("pool", "quota", "red", "3", "--project", "third")
    assert unknown.code != 0 and "'third' is no project of the team" in unknown.err
    refused = oolong("pool", "quota", "red", "--lending", "1", "--project", "second")
    assert refused.code != 0 and "--lending is for teams" in refused.err
