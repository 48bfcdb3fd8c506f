"""Monthly budgets: what counts, when runs pause and wait, and who may set them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from control_plane.accounts.models import AuditEntry, Role, TeamMembership
from control_plane.fleet.models import Lease, Slot
from control_plane.fleet.scheduler import plan
from control_plane.fleet.snapshot import NodeSnapshot, Request, SlotSnapshot, Snapshot, WaitCode
from control_plane.runs.budget_state import (
    Amounts,
    describe,
    month_end,
    month_start,
    state_of,
    used_fractions,
)
from control_plane.runs.budgets import check_budgets
from control_plane.runs.models import Attempt, Budget, Run
from tests.unit.control_plane.runs.test_pause import end_jobs, store_checkpoint

NOW = datetime(2026, 11, 25, tzinfo=UTC)


@pytest.mark.parametrize(
    ("hours", "cost", "state"),
    [
        (7.9, 0.0, "within"), (8.0, 0.0, "warning"), (10.0, 0.0, "exhausted"), (0.0, 85.0, "warning"),
        (99.0, 99.0, "exhausted"),
    ],
)  # fmt: skip
def test_the_limit_that_is_used_most_decides(hours: float, cost: float, state: str) -> None:
    assert state_of(Amounts(10.0, 100.0), Amounts(hours, cost)) == state


def test_a_limit_of_nothing_is_used_up_and_a_missing_one_never_is() -> None:
    assert used_fractions(Amounts(0.0, None), Amounts(0.0, 5.0)) == {"gpu_hours": 1.0}
    assert state_of(Amounts(), Amounts(5.0, 5.0)) == "within"


def test_a_month_ends_where_the_next_one_begins() -> None:
    december = datetime(2026, 12, 31, 23, 59, tzinfo=UTC)
    assert month_start(december) == datetime(2026, 12, 1, tzinfo=UTC)
    assert month_end(december) == datetime(2027, 1, 1, tzinfo=UTC)


def test_the_sentence_names_the_limit_and_the_way_out() -> None:
    said = describe(
        Amounts(10.0, 100.0), Amounts(2.0, 120.0), owner="team red", pool="h100", currency="EUR",
        raised_by="a pool admin", now=NOW,
    )  # fmt: skip
    assert said == (
        "team red has used 120.00 of its 100.00 EUR of November in pool h100; queued runs start on 1 December, or "
        "when a pool admin raises the budget"
    )


def test_the_scheduler_leaves_out_whose_budget_is_used_up_and_starts_the_others() -> None:
    queue = [Request(name, name, "red", 500, 1, NOW, project=name) for name in ("broke", "rich")]
    node = NodeSnapshot("n", "n", (SlotSnapshot("s0"),), (), True)
    decisions = plan(Snapshot(NOW, [node], queue, {}, exhausted={"broke": "project broke has used it"}))
    assert [placement.request for placement in decisions.placements] == ["rich"]
    assert decisions.waiting["broke"].code is WaitCode.BUDGET
    assert decisions.waiting["broke"].message == "project broke has used it"


def set_budget(person: Any, of: str, **body: Any) -> Any:
    return person.call("PUT", f"/pools/default/{of}/budget", body)


def become_team_admin(person: Any) -> None:
    TeamMembership.objects.create(user=person.user, team=person.project.team, role=Role.ADMIN)


@pytest.fixture
def of_team(alice: Any) -> str:
    return f"teams/{alice.project.team_id}"


@pytest.fixture
def of_project(alice: Any) -> str:
    """Alice, who manages the pool, is an admin of the team too."""
    become_team_admin(alice)
    return f"projects/{alice.project.pk}"


@pytest.fixture
def hour(alice: Any, start: Any, node: Any, clock: Any) -> Any:
    """A run that holds one GPU slot and one CPU slot for an hour of the price 2. Returns (node, run)."""
    machine = node()
    run = start(machine)
    Lease.objects.update(granted_at=clock.now, price_per_hour=None)
    Lease.objects.filter(slot__name="cpu-1").update(price_per_hour="2")
    clock.forward(3600)
    machine.beat()
    Slot.objects.filter(name="cpu-1").update(device="cuda")  # until the next heartbeat
    return machine, run


def test_a_budget_shows_what_its_owner_used_this_month(
    alice: Any, hour: Any, of_team: str, of_project: str
) -> None:
    found = set_budget(alice, of_team, gpu_hours="4", cost="2.5").json()
    assert (found["gpu_hours"], found["cost"], found["currency"]) == ("4.00", "2.50", "USD")
    assert (found["used_gpu_hours"], found["used_cost"]) == pytest.approx((1.0, 2.0), rel=1e-3)
    assert (found["used_frac"], found["state"]) == (pytest.approx(0.8, rel=1e-3), "warning")
    set_budget(alice, of_project, gpu_hours="100")
    listed = alice.get("/pools/default/budgets").json()["data"]
    assert [row["project"] and row["project"]["id"] for row in listed] == [alice.project.pk, None]
    assert [row["state"] for row in listed] == ["within", "warning"]


def test_what_was_used_last_month_does_not_count(alice: Any, hour: Any, clock: Any, of_team: str) -> None:
    start = month_start(clock.now)
    Lease.objects.update(granted_at=start.replace(year=start.year - 1), released_at=start)
    assert set_budget(alice, of_team, gpu_hours="4").json()["used_gpu_hours"] == 0.0


def test_at_four_fifths_the_runs_are_warned_once(alice: Any, hour: Any, clock: Any, of_team: str) -> None:
    _, run = hour
    set_budget(alice, of_team, gpu_hours="1.2")
    check_budgets(now=clock.now)
    check_budgets(now=clock.now)
    (event,) = [event for event in alice.events(run["id"]) if event["kind"] == "budget"]
    assert "1.0 of its 1.2 GPU-hours" in event["message"]
    assert alice.see(run["id"])["status"] == "RUNNING"


def test_a_used_up_budget_pauses_runs_with_a_checkpoint_and_new_runs_wait(
    alice: Any, hour: Any, tick: Any, clock: Any, commit_checkpoint: Any, of_project: str
) -> None:
    machine, run = hour
    set_budget(alice, of_project, cost="2")
    check_budgets(now=clock.now)
    assert alice.see(run["id"])["status"] == "PAUSING"
    store_checkpoint(machine, run, commit_checkpoint, step=7)
    end_jobs(machine, tick)
    run = alice.see(run["id"])
    assert (run["status"], run["reason"], run["fault"]) == ("PAUSED", "budget_exhausted", "none")
    assert "of its 2.00 USD" in run["reason_message"] and "resumes from step 7" in run["reason_message"]

    alice.post(f"/runs/{run['id']}/resume")
    tick()
    wait = alice.get(f"/runs/{run['id']}/wait").json()
    assert (wait["code"], wait["starts_now"]) == ("budget", False)
    assert "a team admin raises the budget" in wait["message"] == alice.see(run["id"])["pending_reason"]

    set_budget(alice, of_project, cost="50")
    tick()
    run = alice.see(run["id"])
    assert (run["status"], run["attempt_number"]) == ("STARTING", 2), "the budget was raised"


def test_a_used_up_budget_ends_playgrounds_and_spares_the_runs_of_others(
    alice: Any, hour: Any, clock: Any, of_project: str
) -> None:
    _, run = hour
    set_budget(alice, of_project, cost="1")
    Run.objects.update(kind="playground")
    check_budgets(now=clock.now)
    found = alice.see(run["id"])
    assert (found["status"], found["reason"]) == ("STOPPING", "budget_exhausted")
    Run.objects.update(status="RUNNING", kind="rl", spec={"placement": {"pool": "another"}})
    check_budgets(now=clock.now)
    assert Run.objects.get().status == "RUNNING", "the budget is of the default pool"


def test_a_run_that_is_being_preempted_is_left_to_the_queue(
    alice: Any, hour: Any, clock: Any, of_project: str
) -> None:
    _, run = hour
    set_budget(alice, of_project, cost="1")
    Attempt.objects.update(reason="preempted")
    check_budgets(now=clock.now)
    assert alice.see(run["id"])["status"] == "RUNNING"


def test_queued_runs_start_in_the_next_month(
    alice: Any, node: Any, tick: Any, clock: Any, of_team: str
) -> None:
    node()
    set_budget(alice, of_team, cost="0")
    run = alice.run()
    tick()
    assert "of its 0.00 USD" in alice.see(run["id"])["pending_reason"]
    Budget.objects.update(month="2020-01-01")  # as of an earlier month
    tick()
    assert alice.see(run["id"])["status"] == "STARTING"


def test_without_limits_the_budget_is_gone_and_each_change_has_an_entry(alice: Any, of_team: str) -> None:
    set_budget(alice, of_team, gpu_hours="10")
    set_budget(alice, of_team, cost="5")
    set_budget(alice, of_team, gpu_hours="10.00")  # no change
    found = set_budget(alice, of_team, gpu_hours=None, cost=None).json()
    assert (found["gpu_hours"], found["cost"]) == (None, None)
    assert not Budget.objects.exists()
    entries = AuditEntry.objects.filter(action="pool.set_budget").order_by("pk")
    assert [sorted(set(entry.data) - {"pool"}) for entry in entries] == [
        ["gpu_hours"],
        ["cost"],
        ["cost", "gpu_hours"],
    ]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [({"gpu_hours": "-1"}, "/gpu_hours"), ({"cost": "much"}, "/cost"), ({"slots": 3}, "/slots")],
    ids=["negative", "no number", "unknown"],
)
def test_a_wrong_budget_names_its_field(alice: Any, of_team: str, body: Any, pointer: str) -> None:
    answer = set_budget(alice, of_team, **body)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


def test_a_team_neither_sets_its_own_budget_nor_sees_those_of_others(
    alice: Any, person: Any, of_team: str, of_project: str
) -> None:
    set_budget(alice, of_team, gpu_hours="10")
    bob = person("bob", team="blue")
    assert set_budget(bob, f"projects/{bob.project.pk}", gpu_hours="10").status_code == 403, (
        "of a project only"
    )
    become_team_admin(bob)
    assert set_budget(bob, f"teams/{bob.project.team_id}", gpu_hours="10").status_code == 403
    assert set_budget(bob, of_project, gpu_hours="10").status_code == 404
    assert set_budget(bob, f"projects/{bob.project.pk}", gpu_hours="10").status_code == 200
    assert [row["project"]["id"] for row in bob.get("/pools/default/budgets").json()["data"]] == [
        bob.project.pk
    ]
    viewer = person("vera", role=Role.VIEWER)
    assert set_budget(viewer, of_project, gpu_hours="10").status_code == 403
    assert len(viewer.get("/pools/default/budgets").json()["data"]) == 1


def test_the_command_sets_and_lists_budgets(alice: Any, oolong: Any, of_project: str) -> None:
    assert (
        "may use 500.00 GPU-hours a month"
        in oolong("pool", "budget", "set", "--team", "red", "--gpu-hours", "500").err
    )
    name = alice.project.name
    assert f"project {name} may use" in oolong("pool", "budget", "set", "--project", name, "--cost", "20").err
    lines = [line.split("\t") for line in oolong("pool", "budget", "list").out.splitlines()]
    assert [(line[0], line[1], line[-1]) for line in lines] == [
        ("red", name, "within"),
        ("red", "all", "within"),
    ]
    assert "has no budget" in oolong("pool", "budget", "set", "--project", name, "--cost", "none").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--team", "red"], "give --gpu-hours or --cost"),
        (["--cost", "5"], "give either --team or --project"),
        (["--team", "red", "--cost", "much"], "--cost 'much' is no amount"),
        (["--project", "nowhere", "--cost", "5"], "'nowhere' is no project that you can see"),
    ],
    ids=["no limit", "no owner", "no number", "unknown project"],
)
def test_a_wrong_command_says_what_to_give(oolong: Any, words: list[str], said: str) -> None:
    refused = oolong("pool", "budget", "set", *words)
    assert refused.code == 2 and said in refused.err
