"""Reservations, maintenance windows and quarantine through the API, and what the ticks make of them."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.exceptions import TyperException

from control_plane.accounts.models import AuditEntry
from control_plane.core.infra import clock as wall
from control_plane.fleet import pools
from control_plane.fleet.models import Node, Pool, PoolAdmin, Reservation
from control_plane.fleet.quarantine import Failure, incidents, nodes_to_quarantine
from control_plane.runs.models import Attempt, Run
from control_plane.runs.node_failures import AVOIDED_FOR
from oolong.cli import pool_calendar
from tests.unit.control_plane.conftest import ready_model

HOUR = timedelta(hours=1)


def at(hours: float) -> str:
    return (wall.now() + hours * HOUR).isoformat()


def reserve(alice: Any, status: int = 201, **fields: Any) -> Any:
    reply = alice.post("/pools/default/reservations", {"team": "red", "duration_seconds": 7200, **fields})
    assert reply.status_code == status, reply.content
    return reply.json()


def maintain(alice: Any, status: int = 201, **fields: Any) -> Any:
    body = {"reason": "new fans", "duration_seconds": 7200, **fields}
    reply = alice.post("/pools/default/maintenance", body)
    assert reply.status_code == status, reply.content
    return reply.json()


@pytest.fixture
def blue(person: Any) -> Any:
    """Somebody of another team, with a model and a dataset."""
    mallory = person("mallory", team="blue")
    ready_model(mallory)
    mallory.dataset()
    return mallory


def team_of(somebody: Any) -> str:
    return str(somebody.project.team.name)


def pass_time(seconds: float, clock: Any, tick: Any, machine: Any) -> None:
    """The node reports just before the tick."""
    clock.forward(seconds)
    machine.beat()
    tick(0)


# --- reservations


def test_slots_are_reserved_for_a_team_beyond_its_quota_and_others_learn_until_when(
    alice: Any, blue: Any, node: Any, tick: Any
) -> None:
    node()
    pools.set_quota(Pool.objects.get(), blue.project.team, limit_slots=0)
    made = reserve(alice, team=team_of(blue), slots=2, reason="demo")
    assert (made["state"], made["slots"], made["allocation"], made["reason"]) == ("active", 2, [], "demo")
    own, shut_out = blue.run(), alice.run()
    tick()
    assert blue.see(own["id"])["status"] == "STARTING"
    waits = alice.get(f"/runs/{shut_out['id']}/wait").json()
    assert waits["code"] in ("capacity", "reserved")
    (listed,) = alice.get("/pools/default/reservations").json()["data"]
    assert [one["slots"] for one in listed["allocation"]] == [["cpu-0", "cpu-1"]]
    assert alice.post(f"/runs/{own['id']}/cancel").status_code == 404


def test_an_idle_reservation_explains_the_wait_and_its_cancellation_ends_it(
    alice: Any, blue: Any, node: Any, tick: Any
) -> None:
    node()
    made = reserve(alice, team=team_of(blue), slots=2)
    run = alice.run()
    tick()
    waits = alice.get(f"/runs/{run['id']}/wait").json()
    assert waits["code"] == "reserved"
    assert "2 slots of node-1 are held for team blue until" in waits["message"]
    assert alice.see(run["id"])["pending_reason"] == waits["message"]
    assert waits["start"]["p50"] is not None, "the end of the reservation"
    reply = alice.call("DELETE", f"/pools/default/reservations/{made['id']}")
    assert reply.status_code == 204
    assert alice.get("/pools/default/reservations").json()["data"] == []
    tick()
    assert alice.see(run["id"])["status"] == "STARTING"
    actions = AuditEntry.objects.filter(action__startswith="pool.").values_list("action", flat=True)
    assert {"pool.reserve", "pool.cancel_reservation"} <= set(actions)


def test_a_run_leaves_the_slots_with_a_checkpoint_in_time_for_the_start(
    alice: Any, blue: Any, node: Any, start: Any, clock: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)
    reserve(alice, team=team_of(blue), slots=2, starts_at=at(1))
    tick()
    assert alice.see(run["id"])["status"] == "RUNNING"
    pass_time(55 * 60, clock, tick, machine)
    (attempt,) = machine.beat().attempts
    assert [job.name for job in attempt.jobs if job.stop] == ["trainer"], "it saves a checkpoint first"
    event = Run.objects.get(pk=run["id"]).events.get(kind="preempted")
    assert "held for team blue" in event.message


@pytest.mark.parametrize(
    ("fields", "pointer", "words"),
    [
        ({"slots": 3}, "/slots", "it has 2 healthy slots, of which 0 are reserved at that time"),
        ({"nodes": ["nowhere"]}, "/nodes/0", "'nowhere' is no node of pool 'default'; its nodes: node-1"),
        ({"slots": 1, "nodes": ["node-1"]}, "/slots", "give exactly one of slots or nodes"),
        ({}, "/slots", "give exactly one of slots or nodes"),
        ({"slots": 1, "team": "nobody"}, "/team", "no team 'nobody' may use pool 'default'"),
        ({"slots": 1, "project": "other"}, "/project", "has no project 'other'"),
        ({"slots": 1, "duration_seconds": None}, "/duration_seconds", ""),
        ({"slots": 1, "ends_at": "2026-01-01T00:00:00Z"}, "/duration_seconds", "not both"),
        ({"slots": 1, "device": "cuda"}, "/slots", "it has 0 healthy cuda slots"),
    ],
)
def test_a_reservation_that_does_not_fit_is_refused_with_the_field(
    alice: Any, node: Any, fields: Any, pointer: str, words: str
) -> None:
    node()
    found = reserve(alice, 422, **{"team": team_of(alice), **fields})
    assert pointer in [error["pointer"] for error in found["errors"]]
    assert words in str(found["errors"])


def test_an_end_before_the_start_and_an_end_in_the_past_are_refused(alice: Any, node: Any) -> None:
    node()
    for period in ({"starts_at": at(2), "ends_at": at(1)}, {"starts_at": at(-2), "ends_at": at(-1)}):
        body = {"team": team_of(alice), "slots": 1, **period}
        reply = alice.post("/pools/default/reservations", body)
        assert reply.status_code == 422
        assert reply.json()["errors"][0]["pointer"] == "/ends_at"


def test_slots_are_reserved_once_at_a_time(alice: Any, node: Any) -> None:
    node()
    reserve(alice, team=team_of(alice), nodes=["node-1"])
    again = reserve(alice, 422, team=team_of(alice), slots=1)
    assert "of which 2 are reserved at that time" in again["errors"][0]["message"]
    both = reserve(alice, 422, team=team_of(alice), nodes=["node-1"])
    assert "node-1 is reserved by res_" in both["errors"][0]["message"]
    later = reserve(alice, team=team_of(alice), nodes=["node-1"], starts_at=at(2.1))
    assert later["state"] == "upcoming" and later["nodes"][0]["name"] == "node-1"


def test_only_those_who_manage_the_pool_write_its_calendar(alice: Any, node: Any) -> None:
    machine = node()
    made = reserve(alice, team=team_of(alice), slots=1)
    window = maintain(alice, starts_at=at(48))
    PoolAdmin.objects.all().delete()
    type(alice.user).objects.filter(pk=alice.user.pk).update(is_staff=False)
    body = {"team": team_of(alice), "slots": 1, "duration_seconds": 60}
    for reply in (
        alice.post("/pools/default/reservations", body),
        alice.call("DELETE", f"/pools/default/reservations/{made['id']}"),
        alice.post("/pools/default/maintenance", {"reason": "x", "duration_seconds": 60}),
        alice.call("DELETE", f"/pools/default/maintenance/{window['id']}"),
        alice.post(f"/pool/nodes/{machine.node_id}/quarantine", {"reason": "x"}),
        alice.post(f"/pool/nodes/{machine.node_id}/release"),
    ):
        assert reply.status_code == 403, reply.content
    assert len(alice.get("/pools/default/reservations").json()["data"]) == 1


def test_a_team_that_loses_the_pool_loses_its_reservations(alice: Any, node: Any) -> None:
    node()
    lab = pools.create_pool("lab")
    pools.bind_team(lab, alice.project.team)
    pools.appoint_admin(lab, alice.user)
    node("lab-node", pool="lab")
    body = {"team": team_of(alice), "slots": 1, "duration_seconds": 7200}
    assert alice.post("/pools/lab/reservations", body).status_code == 201
    pools.unbind_team(lab, alice.project.team)
    assert not Reservation.objects.exists()


# --- maintenance


def test_a_node_is_drained_before_its_maintenance_and_returns_at_its_end(
    alice: Any, node: Any, start: Any, clock: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)
    window = maintain(alice, nodes=["node-1"], starts_at=at(1), duration_seconds=3600)
    assert (window["state"], window["whole_pool"]) == ("upcoming", False)
    pass_time(40 * 60, clock, tick, machine)
    assert Node.objects.get().intent == "ACTIVE"
    pass_time(6 * 60, clock, tick, machine)
    found = Node.objects.get()
    assert (found.intent, found.drain_deadline.isoformat()) == (
        "DRAINING", Node.objects.get().maintenance.starts_at.isoformat(),
    )  # fmt: skip
    assert alice.get("/pool").json()["nodes"][0]["maintenance_ends_at"] is not None
    (attempt,) = machine.beat().attempts
    assert [job.name for job in attempt.jobs if job.stop] == ["trainer"], "it saves a checkpoint first"
    machine.ship_all()
    pass_time(75 * 60, clock, tick, machine)
    assert (Node.objects.get().intent, Node.objects.get().maintenance) == ("ACTIVE", None)
    assert Run.objects.get(pk=run["id"]).status != "FAILED"
    assert alice.get("/pools/default/maintenance").json()["data"] == []
    (ended,) = alice.get("/pools/default/maintenance?state=all").json()["data"]
    assert ended["state"] == "ended"


def test_nothing_is_placed_that_may_outlive_the_start_of_the_maintenance(
    alice: Any, node: Any, tick: Any
) -> None:
    node()
    maintain(alice, starts_at=at(0.75))
    run = alice.run()
    tick()
    waits = alice.get(f"/runs/{run['id']}/wait").json()
    assert waits["code"] == "maintenance"
    assert "node-1 is in maintenance from" in waits["message"] and "(new fans)" in waits["message"]


def test_a_person_has_the_last_word_about_a_node_in_maintenance(alice: Any, node: Any, tick: Any) -> None:
    machine = node()
    window = maintain(alice)
    tick()
    assert Node.objects.get().intent == "DRAINING"
    alice.post(f"/pool/nodes/{machine.node_id}/uncordon")
    tick(60)
    assert Node.objects.get().intent == "ACTIVE", "the window drains a node once"
    alice.post(f"/pool/nodes/{machine.node_id}/drain", {})
    assert alice.call("DELETE", f"/pools/default/maintenance/{window['id']}").status_code == 204
    assert Node.objects.get().intent == "DRAINING", "by a person"


def test_a_cancelled_maintenance_returns_its_nodes(alice: Any, node: Any, tick: Any) -> None:
    node()
    window = maintain(alice)
    tick()
    assert Node.objects.get().intent == "DRAINING"
    assert alice.call("DELETE", f"/pools/default/maintenance/{window['id']}").status_code == 204
    assert (Node.objects.get().intent, Node.objects.get().drain_deadline) == ("ACTIVE", None)


# --- nodes that fail runs

NOW = wall.now()


def failures(*, cause: str = "preparation_failed", runs: int = 3, minutes: float = 0) -> list[Failure]:
    return [Failure(f"run-{index}", cause, NOW - timedelta(minutes=minutes + index)) for index in range(runs)]


def test_runs_that_a_node_fails_are_counted_once_each_and_within_the_window() -> None:
    assert len(incidents(failures(), now=NOW)) == 3
    assert len(incidents([*failures(), *failures()], now=NOW)) == 3, "the same runs"
    assert incidents(failures(minutes=361), now=NOW) == []


def test_all_runs_of_one_outage_count_as_one() -> None:
    assert len(incidents(failures(cause="node_lost", runs=5), now=NOW)) == 1
    late = [Failure("late", "node_lost", NOW - timedelta(minutes=60))]
    assert len(incidents([*failures(cause="node_lost"), *late], now=NOW)) == 2


def test_a_node_is_quarantined_only_while_half_of_the_others_stay() -> None:
    three = {name: failures() for name in ("a", "b", "c")}
    assert list(nodes_to_quarantine({"a": failures()}, ["a", "b"], now=NOW)) == ["a"]
    assert nodes_to_quarantine({"a": failures()}, ["a"], now=NOW) == {}, "the only node"
    assert list(nodes_to_quarantine(three, ["a", "b", "c"], now=NOW)) == ["a"], "the cause lies elsewhere"
    assert nodes_to_quarantine({"a": failures(runs=2)}, ["a", "b"], now=NOW) == {}
    assert nodes_to_quarantine({"a": failures()}, ["b", "c"], now=NOW) == {}, "it takes no jobs anyway"
    (reason,) = nodes_to_quarantine({"a": failures()}, ["a", "b"], now=NOW).values()
    assert reason == "attempts of 3 runs failed here within 6 hours: preparation_failed"


def fail_on(machine: Any, run: Any, cause: str = "preparation_failed") -> None:
    """As if an attempt of the run had failed there."""
    Attempt.objects.create(
        run_id=run["id"], number=1, epoch=1, node_id=machine.node_id, status="ENDED", reason=cause, token="",
        ports={}, created_at=wall.now(), ending_at=wall.now(), ended_at=wall.now(),
    )  # fmt: skip
    Run.objects.filter(pk=run["id"]).update(attempt_number=1, epoch=1)


def test_a_run_avoids_the_node_that_failed_it_while_another_could_hold_it(
    alice: Any, node: Any, tick: Any
) -> None:
    bad, good = node("bad"), node("good")
    run = alice.run()
    fail_on(bad, run)
    tick()
    assert Attempt.objects.get(run=run["id"], number=2).node_id == good.node_id
    other = alice.run()
    fail_on(bad, other)
    tick()
    assert alice.see(other["id"])["status"] == "QUEUED", "it waits for the other node"
    alice.post(f"/pool/nodes/{good.node_id}/cordon")
    tick()
    assert Attempt.objects.get(run=other["id"], number=2).node_id == bad.node_id
    assert AVOIDED_FOR > HOUR


def test_a_node_that_fails_three_runs_is_quarantined_until_an_admin_releases_it(
    alice: Any, node: Any, tick: Any
) -> None:
    bad, _ = node("bad"), node("good")
    runs = [alice.run(name=f"run-{index}") for index in range(3)]
    for run in runs:
        fail_on(bad, run)
        Run.objects.filter(pk=run["id"]).update(status="FAILED")
    tick()
    (shown,) = [one for one in alice.get("/pool").json()["nodes"] if one["name"] == "bad"]
    assert (shown["status"], shown["quarantine_reason"]) == (
        "QUARANTINED", "attempts of 3 runs failed here within 6 hours: preparation_failed",
    )  # fmt: skip
    waits = [alice.run(name=f"waits-{index}") for index in range(2)]
    tick()
    assert [alice.see(run["id"])["status"] for run in waits] == ["STARTING", "QUEUED"]
    reply = alice.post(f"/pool/nodes/{bad.node_id}/release")
    assert (reply.status_code, reply.json()["status"], reply.json()["quarantine_reason"]) == (
        200,
        "READY",
        "",
    )
    tick()
    tick()
    assert alice.see(waits[1]["id"])["status"] == "STARTING"
    assert Node.objects.get(pk=bad.node_id).quarantined_at is None, "earlier failures do not count again"
    actions = list(AuditEntry.objects.filter(action__startswith="node.").values_list("action", flat=True))
    assert {"node.quarantine", "node.release"} <= set(actions)


def test_an_admin_quarantines_a_node_by_hand(alice: Any, node: Any, tick: Any) -> None:
    machine = node()
    reply = alice.post(f"/pool/nodes/{machine.node_id}/quarantine", {"reason": "XID 79 on GPU 3"})
    assert (reply.json()["status"], reply.json()["quarantine_reason"]) == ("QUARANTINED", "XID 79 on GPU 3")
    run = alice.run()
    tick()
    assert alice.see(run["id"])["pending_reason"] == "no node accepts jobs: node-1 is quarantined"


# --- excluded nodes


def test_a_run_is_never_placed_on_a_node_that_it_excludes(alice: Any, node: Any, tick: Any) -> None:
    first, second = node("first"), node("second")
    run = alice.run(placement={"exclude_nodes": ["first"]})
    tick()
    assert Attempt.objects.get(run=run["id"]).node_id == second.node_id
    by_id = alice.run(placement={"exclude_nodes": [second.node_id]})
    tick()
    assert Attempt.objects.get(run=by_id["id"]).node_id == first.node_id


def test_an_excluded_node_that_the_pool_does_not_have_is_an_error_of_the_field(alice: Any, node: Any) -> None:
    node()
    spec = alice.spec(placement={"exclude_nodes": ["node-1", "gpu-9"]})
    reply = alice.post("/runs", {"spec": spec})
    assert reply.status_code == 422
    (error,) = reply.json()["errors"]
    assert error["pointer"].endswith("/placement/exclude_nodes/1")
    assert error["message"] == (
        "'gpu-9' is no node of pool 'default'; leave it out, or name one of its nodes: node-1"
    )


# --- the command


def test_the_command_reserves_lists_and_cancels(alice: Any, node: Any, oolong: Any) -> None:
    node()
    done = oolong(
        "pool", "reservation", "create", "red", "--slots", "1", "--start", "2h", "--for", "8h", "--json"
    )
    assert done.code == 0, done.err
    made = json.loads(done.out)
    assert (made["state"], made["slots"], made["team"]["name"]) == ("upcoming", 1, "red")
    assert made["id"] in oolong("pool", "reservation", "list").out
    cancelled = oolong("pool", "reservation", "cancel", made["id"])
    assert "is cancelled" in cancelled.err
    assert made["id"] not in oolong("pool", "reservation", "list").out
    both = oolong("pool", "reservation", "create", "red", "--slots", "1", "--node", "node-1", "--for", "8h")
    assert "give either --slots or --node" in both.err
    too_many = oolong("pool", "reservation", "create", "red", "--slots", "9", "--for", "8h")
    assert "9 slots are more than pool 'default' can reserve then" in too_many.err


def test_the_command_plans_maintenance_and_quarantines(alice: Any, node: Any, oolong: Any) -> None:
    node()
    done = oolong(
        "pool",
        "maintenance",
        "create",
        "new fans",
        "--node",
        "node-1",
        "--start",
        "2d",
        "--for",
        "2h",
        "--json",
    )
    made = json.loads(done.out)
    assert [one["name"] for one in made["nodes"]] == ["node-1"]
    assert "new fans" in oolong("pool", "maintenance", "list").out
    assert (
        "give either --node or --whole-pool"
        in oolong("pool", "maintenance", "create", "x", "--for", "2h").err
    )
    assert oolong("pool", "maintenance", "cancel", made["id"]).code == 0
    assert oolong("pool", "quarantine", "add", "node-1", "--reason", "XID 79").out.strip() == "QUARANTINED"
    assert "XID 79" in oolong("pool", "quarantine", "list").out
    assert oolong("pool", "quarantine", "release", "node-1").out.strip() == "READY"
    assert "'gpu-9' is not one node of pool default" in oolong("pool", "quarantine", "release", "gpu-9").err


@pytest.mark.parametrize(
    ("start", "end", "lasts", "period"),
    [
        (None, None, "8h", {"duration_seconds": 28_800}),
        ("2h", None, "30m", {"starts_at": "2026-11-20T12:00:00Z", "duration_seconds": 1800}),
        (
            "2026-11-21T10:00:00+02:00",
            "2026-11-21T09:00",
            None,
            {"starts_at": "2026-11-21T08:00:00Z", "ends_at": "2026-11-21T09:00:00Z"},
        ),
    ],
)
def test_times_are_absolute_or_from_now(
    start: str | None, end: str | None, lasts: str | None, period: pool_calendar.Period
) -> None:
    assert pool_calendar.period(start, end, lasts, now=datetime(2026, 11, 20, 10, tzinfo=UTC)) == period


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((None, None, None), "give either --end or --for"),
        ((None, "1h", "1h"), "give either --end or --for"),
        (
            ("soon", None, "1h"),
            "--start 'soon' is no time; write it like 2026-11-20T10:00:00Z, or 2h from now",
        ),
        ((None, None, "1"), "--for '1' is no duration; write 90s, 30m, 2h or 1d"),
    ],
)
def test_a_time_that_cannot_be_read_is_an_error_of_its_option(words: Any, message: str) -> None:
    with pytest.raises(TyperException, match=re.escape(message)):
        pool_calendar.period(*words)
