"""Nodes that their provider ends: drained before, never a reason to fail, and gone from the pool when they leave."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from control_plane.accounts.models import AuditEntry
from control_plane.fleet.allocations import drain_starts_at
from control_plane.fleet.models import Node
from control_plane.runs.models import Attempt, Run
from oolong.contracts.lifecycle import EndReason

HOUR = timedelta(hours=1)


@pytest.fixture
def slurm_node(node: Any, clock: Any) -> Any:
    """A node that is a Slurm job of so many hours."""

    def make(hours: float, **changes: Any) -> Any:
        machine = node(slurm_job="4711", ends_at=clock.now + hours * HOUR, **changes)
        Node.objects.filter(pk=machine.node_id).update(enrolled_at=clock.now)
        return machine

    return make


def shown(alice: Any) -> Any:
    (found,) = alice.get("/pool").json()["nodes"]
    return found


def waits(alice: Any) -> tuple[str | None, str]:
    (entry,) = alice.get("/pool").json()["queue"]
    return entry["code"], entry["why"]


@pytest.fixture
def pass_minutes(clock: Any, tick: Any) -> Any:
    """The node reports just before the ticks that follow."""

    def forward(minutes: float, machine: Any) -> None:
        clock.forward(minutes * 60)
        for _ in range(3):
            machine.beat()
            machine.ship_all()
            tick(0)

    return forward


@pytest.mark.parametrize(("hours", "minutes"), [(12, 15), (1, 15), (0.5, 7.5), (0, 1)])
def test_the_drain_begins_a_quarter_of_the_allocation_before_its_end_15_minutes_at_most_and_1_at_least(
    hours: float, minutes: float
) -> None:
    began = datetime(2026, 1, 1, 12)
    found = drain_starts_at(Node(enrolled_at=began, ends_at=began + hours * HOUR))
    assert found == began + hours * HOUR - timedelta(minutes=minutes)
    assert drain_starts_at(Node(enrolled_at=began)) is None


def test_the_pool_shows_what_a_node_is_and_when_it_ends(alice: Any, slurm_node: Any) -> None:
    slurm_node(4)
    found = shown(alice)
    named = [found[name] for name in ("provider", "provider_job", "partition", "account", "ends_at")]
    assert named == ["slurm", "4711", "gpu", "rl", "2026-01-01T16:00:00.000Z"]


def test_a_run_leaves_with_a_checkpoint_before_its_node_ends(
    alice: Any, slurm_node: Any, start: Any, pass_minutes: Any, commit_checkpoint: Any
) -> None:
    machine = slurm_node(4)
    run = start(machine)
    pass_minutes(220, machine)
    assert shown(alice)["status"] == "READY"
    pass_minutes(6, machine)
    found = shown(alice)
    assert (found["status"], found["drain_deadline"]) == ("DRAINING", "2026-01-01T15:59:00.000Z")
    first = Attempt.objects.get(run_id=run["id"])
    commit_checkpoint(run["id"], first.pk, step=5)
    pass_minutes(1, machine)
    machine.upload_checkpoint(first.pk, first.epoch, step=5)
    pass_minutes(1, machine)
    first.refresh_from_db()
    assert (first.status, first.reason, alice.see(run["id"])["status"]) == ("ENDED", "preempted", "QUEUED")
    assert shown(alice)["status"] == "DRAINED"


def test_a_node_that_is_asked_for_at_once_drains_with_that_heartbeat(
    alice: Any, slurm_node: Any, start: Any, clock: Any
) -> None:
    machine = slurm_node(4)
    start(machine)
    machine.ends_at = clock.now + timedelta(seconds=30)
    machine.beat()
    found = shown(alice)
    assert (found["status"], found["ends_at"]) == ("DRAINING", "2026-01-01T12:00:31.000Z")
    assert found["drain_deadline"] == "2026-01-01T12:00:26.000Z", "5 s are left for what is to be uploaded"


def test_an_earlier_deadline_of_a_person_stays_and_a_later_one_does_not(
    alice: Any, slurm_node: Any, pass_minutes: Any
) -> None:
    machine = slurm_node(1)
    alice.post(f"/pool/nodes/{machine.node_id}/drain", {"deadline_seconds": 600})
    pass_minutes(8, machine)
    assert shown(alice)["drain_deadline"] == "2026-01-01T12:10:00.000Z"
    alice.post(f"/pool/nodes/{machine.node_id}/drain", {"deadline_seconds": 86_400})
    pass_minutes(40, machine)
    assert shown(alice)["drain_deadline"] == "2026-01-01T12:59:00.000Z"


@pytest.mark.parametrize("reason", [EndReason.STOPPED_BY_USER, EndReason.NODE_LOST, None])
def test_jobs_that_their_provider_kills_do_not_make_a_run_fail(
    alice: Any, slurm_node: Any, start: Any, pass_minutes: Any, clock: Any, reason: EndReason | None
) -> None:
    machine = slurm_node(4)
    run = start(machine)
    for job in list(machine.jobs):
        machine.exit(job, reason, code=-15)
    machine.ends_at = clock.now + timedelta(seconds=30)
    pass_minutes(1, machine)
    first = Attempt.objects.get(run_id=run["id"])
    assert (first.reason, alice.see(run["id"])["status"]) == ("preempted", "QUEUED")
    assert not Run.objects.get(pk=run["id"]).events.filter(data__after="FAILED").exists()


def test_a_run_of_unknown_length_starts_in_the_first_half_of_a_short_allocation_only(
    alice: Any, slurm_node: Any, tick: Any, pass_minutes: Any
) -> None:
    machine = slurm_node(0.5)
    pass_minutes(12, machine)
    run = alice.run()
    tick()
    code, why = waits(alice)
    assert code == "maintenance"
    assert "drained from 12:22 UTC on, because its slurm job 4711 ends" in why
    assert alice.see(run["id"])["status"] == "QUEUED"


def test_a_run_of_unknown_length_starts_on_a_fresh_node(alice: Any, slurm_node: Any, start: Any) -> None:
    start(slurm_node(0.5))


def test_a_node_leaves_its_pool_once_nothing_needs_it(
    alice: Any, slurm_node: Any, start: Any, pass_minutes: Any
) -> None:
    machine = slurm_node(4)
    run = start(machine)
    refused = machine.post("/leave", b"{}")
    assert (refused.status_code, refused.json()["code"]) == (409, "node_in_use")
    alice.post(f"/runs/{run['id']}/cancel")
    pass_minutes(1, machine)
    assert machine.post("/leave", b"{}").status_code == 200
    assert alice.get("/pool").json()["nodes"] == []
    assert AuditEntry.objects.filter(action="node.leave", target_id=machine.node_id).exists()
    assert machine.post("/leave", b"{}").json()["code"] == "node_revoked"


def test_the_code_of_a_wait_is_shown_to_its_team_and_to_managers_of_the_pool(
    alice: Any, person: Any, node: Any, tick: Any
) -> None:
    alice.run()
    tick()
    assert waits(alice)[0] == "never_fits"
    assert waits(person("mallory", team="blue")) == (None, "")
