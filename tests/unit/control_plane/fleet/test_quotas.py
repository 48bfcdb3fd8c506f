"""Quotas of a pool: what a team can always get, what it may borrow, and how borrowed slots are returned."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from control_plane.fleet import pools
from control_plane.fleet.models import Lease, Pool, Quota
from control_plane.fleet.selectors import decayed_slot_hours
from control_plane.runs.models import Attempt, Run
from tests.unit.control_plane.conftest import ready_model


@pytest.fixture
def borrower(person: Any, node: Any, tick: Any) -> tuple[Any, Run]:
    """A node, full with the run of another team."""
    mallory = person("mallory", team="blue")
    ready_model(mallory)
    mallory.dataset()
    machine, run = node(), mallory.run()
    tick()
    machine.beat()
    machine.beat()
    found = Run.objects.get(pk=run["id"])
    assert found.status == "RUNNING"
    return machine, found


def let_it_stop(machine: Any, tick: Any) -> None:
    for _ in range(4):
        machine.ship_all()
        machine.beat()
        tick(10)


def test_a_run_within_its_nominal_quota_gets_its_slots_back_from_a_run_that_borrowed_them(
    alice: Any, borrower: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine, other = borrower
    pools.set_quota(Pool.objects.get(), alice.project.team, nominal_slots=2)
    own = alice.run()
    tick()
    assert alice.see(own["id"])["status"] == "QUEUED", "the other run has its minimum runtime"
    tick(600)
    first = Attempt.objects.get(run=other)
    (attempt,) = machine.beat().attempts
    assert [job.name for job in attempt.jobs if job.stop] == ["trainer"], "it saves a checkpoint first"
    commit_checkpoint(other.pk, first.pk, step=5)
    machine.upload_checkpoint(first.pk, first.epoch, step=5)
    let_it_stop(machine, tick)
    other.refresh_from_db()
    first.refresh_from_db()
    assert (other.status, other.reason, first.reason) == ("QUEUED", "", "preempted")
    assert alice.see(own["id"])["status"] in ("STARTING", "RUNNING")
    assert other.events.filter(kind="preempted").count() == 1
    assert not Attempt.objects.exclude(run=other.pk).get().reason, "and it is not preempted in return"

    tick(3600)
    Attempt.objects.filter(run=own["id"]).update(status="ENDED")
    Lease.objects.update(released_at=other.status_at)
    tick()
    other.refresh_from_db()
    assert (other.status, other.attempt_number) == ("STARTING", 2)
    assert other.paused_seconds >= 3600, "its wait does not count toward budget.max_wall_seconds"


def test_a_preempted_run_whose_trainer_is_killed_at_its_deadline_has_not_failed(
    alice: Any, borrower: Any, tick: Any
) -> None:
    machine, other = borrower
    pools.set_quota(Pool.objects.get(), alice.project.team, nominal_slots=2)
    alice.run()
    tick(601)
    machine.exit(machine.job("trainer"), None, code=-9)
    machine.beat()
    tick()
    other.refresh_from_db()
    assert (other.status, other.fault) == ("RECOVERING", "")
    assert Attempt.objects.get(run=other).reason == "preempted"


def test_without_a_nominal_quota_no_run_is_preempted(alice: Any, borrower: Any, tick: Any) -> None:
    machine, other = borrower
    alice.run()
    tick(3600)
    assert not any(job.stop for attempt in machine.beat().attempts for job in attempt.jobs)
    assert Run.objects.get(pk=other.pk).status == "RUNNING"


def test_the_use_of_slots_counts_half_after_its_half_life(
    alice: Any, node: Any, start: Any, clock: Any
) -> None:
    start(node())
    team = alice.project.team_id
    Lease.objects.update(granted_at=clock.now - timedelta(hours=1), released_at=clock.now)
    fresh = decayed_slot_hours("default", now=clock.now)[team]
    assert fresh == pytest.approx(2.0, rel=0.01), "two slots for an hour"
    assert decayed_slot_hours("default", now=clock.now + timedelta(hours=168))[team] == pytest.approx(
        fresh / 2
    )


def test_the_command_sets_what_it_names_and_leaves_the_rest(alice: Any, oolong: Any) -> None:
    assert oolong("pool", "quota", "red", "--nominal", "4", "--lending", "1").code == 0
    done = oolong("pool", "quota", "red", "8")
    assert done.err == "red has 4 nominal slots (lends at most 1 of them), at most 8 slots in pool default\n"
    quota = Quota.objects.get()
    assert (quota.nominal_slots, quota.limit_slots, quota.lending_limit) == (4, 8, 1)
    assert oolong("pool", "quota", "red", "--lending", "none").code == 0
    assert Quota.objects.get().lending_limit is None
    assert "nothing to change" in oolong("pool", "quota", "red").err


def test_a_limit_below_the_nominal_quota_is_rejected(alice: Any) -> None:
    quota = f"/pools/default/teams/{alice.project.team_id}/quota"
    rejected = alice.call("PUT", quota, {"nominal_slots": 4, "limit_slots": 3}).json()
    assert rejected["errors"][0]["pointer"] == "/limit_slots"
    assert alice.call("PUT", quota, {}).status_code == 422
    assert not Quota.objects.exists()
