"""Three ways to end a run: with a checkpoint (stop), without one (cancel), and at once (force)."""

from __future__ import annotations

from typing import Any

import pytest

from control_plane.accounts.models import AuditEntry, Role
from control_plane.fleet.models import Lease
from control_plane.runs.models import Attempt, Job
from oolong.contracts.lifecycle import EndReason


def test_cancel_asks_every_job_at_once_with_a_short_grace(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)
    cancelled = alice.post(f"/runs/{run['id']}/cancel")
    assert cancelled.status_code == 202 and cancelled.json()["status"] == "STOPPING"
    wanted = machine.beat().attempts[0].jobs
    assert all(job.stop and job.grace_seconds <= 5 for job in wanted)
    machine.ship_all()
    machine.beat()
    tick()
    ended = alice.see(run["id"])
    assert (ended["status"], ended["reason"], ended["fault"]) == ("STOPPED", "cancelled_by_user", "none")
    assert "alice" in ended["reason_message"]


def test_a_cancel_overtakes_a_stop_and_is_said_once(alice: Any, node: Any, start: Any) -> None:
    machine = node()
    run = start(machine)
    alice.post(f"/runs/{run['id']}/stop")
    assert [job.name for job in machine.beat().attempts[0].jobs if job.stop] == ["trainer"]
    for _ in range(2):
        assert alice.post(f"/runs/{run['id']}/cancel").json()["reason"] == "cancelled_by_user"
    assert Job.objects.filter(stop_asked_at=None).count() == 0
    assert [event["kind"] for event in alice.events(run["id"])].count("cancel") == 1


def test_force_ends_at_once_and_keeps_the_slots_until_the_jobs_are_dead(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)
    epoch = Attempt.objects.get().epoch
    forced = alice.post(f"/runs/{run['id']}/force-stop").json()
    assert (forced["status"], forced["reason"]) == ("STOPPED", "forced_by_operator")
    assert "2 slots stay leased until node-1" in forced["reason_message"]
    assert Lease.objects.filter(released_at=None).count() == 2
    waiting = alice.run(name="next")
    tick()
    assert alice.see(waiting["id"])["status"] == "QUEUED", "its slots are not sold before they are free"
    attempt = Attempt.objects.get()
    late = machine.upload_checkpoint(attempt.pk, epoch, step=3)
    assert (late.status_code, late.json()["code"]) == (409, "stale_epoch")
    machine.beat()  # hears that nothing is wanted any more, and ends its jobs
    machine.beat()  # says so
    assert Lease.objects.filter(released_at=None).count() == 0
    tick()
    assert alice.see(waiting["id"])["status"] == "STARTING"


@pytest.mark.parametrize("before", ["stop", "pause", "cancel"])
def test_force_ends_what_ends_too_slowly(alice: Any, node: Any, start: Any, before: str) -> None:
    run = start(node())
    alice.post(f"/runs/{run['id']}/{before}")
    assert alice.post(f"/runs/{run['id']}/force-stop").json()["status"] == "STOPPED"
    assert alice.post(f"/runs/{run['id']}/force-stop").json()["code"] == "has_ended"


def test_force_is_for_operators(alice: Any, person: Any) -> None:
    run = alice.run()
    bob = person("bob", role=Role.EDITOR)
    refused = bob.post(f"/runs/{run['id']}/force-stop")
    assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")
    assert alice.see(run["id"])["status"] == "QUEUED"
    assert bob.post(f"/runs/{run['id']}/cancel").json()["status"] == "STOPPED"


def test_a_loss_that_is_no_longer_allowed_does_not_start(alice: Any, node: Any, tick: Any) -> None:
    from control_plane.runs.models import Run

    node()
    run = alice.run()
    row = Run.objects.get()
    row.spec["algorithm"]["loss_function"] = "mine@1"
    row.save()
    tick()
    ended = alice.see(run["id"])
    assert (ended["status"], ended["reason"]) == ("FAILED", "config_rejected")
    assert "trainer_code" in ended["reason_message"]


def test_a_run_that_finishes_keeps_its_cause_whoever_cancels_or_stops_it(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)
    machine.exit(machine.job("trainer"), EndReason.NONFINITE_LOSS, code=1, message="three steps")
    machine.beat()
    for verb in ("stop", "cancel", "cancel"):
        asked = alice.post(f"/runs/{run['id']}/{verb}")
        assert (asked.status_code, asked.json()["status"]) == (202, "FINALIZING")
        assert (asked.json()["reason"], asked.json()["fault"]) == ("nonfinite_loss", "config")
    assert all(job.grace_seconds <= 5 for job in Job.objects.exclude(state="exited"))
    acts = AuditEntry.objects.filter(action__in=["run.cancel", "run.stop"]).values_list("action", flat=True)
    assert list(acts) == ["run.cancel"]
    machine.beat()
    machine.beat()
    tick()
    assert alice.see(run["id"])["status"] == "FAILED"


def test_a_cancel_takes_nothing_from_work_that_is_done(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    attempt = Attempt.objects.get()
    commit_checkpoint(run["id"], attempt.pk, step=3, final=True)
    for name in ("trainer", "controller"):
        machine.exit(machine.job(name), EndReason.COMPLETED)
    machine.beat()
    for _ in range(2):
        asked = alice.post(f"/runs/{run['id']}/cancel")
        assert (asked.status_code, asked.json()["status"], asked.json()["reason"]) == (202, "FINALIZING", "")
    assert [event["kind"] for event in alice.events(run["id"])].count("cancel") == 1
    assert all(
        job.stop and job.grace_seconds <= 5 for job in machine.beat().attempts[0].jobs if job.name == "reward"
    )
    machine.upload_checkpoint(attempt.pk, attempt.epoch, step=3, final=True)
    machine.ship_all()
    machine.beat()
    tick()
    ended = alice.see(run["id"])
    assert (ended["status"], ended["reason"]) == ("SUCCEEDED", "completed")
    assert alice.post(f"/runs/{run['id']}/cancel").json()["code"] == "has_ended"


def test_a_late_report_without_a_job_does_not_free_the_slot_that_it_holds(
    alice: Any, node: Any, start: Any, clock: Any
) -> None:
    machine = node()
    run = start(machine)
    alice.post(f"/runs/{run['id']}/force-stop")
    jobs = machine.jobs
    for _ in range(2):  # a report without the jobs, one with them, and again
        machine.jobs = {}
        machine.beat()
        assert Lease.objects.filter(released_at=None).count() == 2
        clock.forward(6)
        machine.jobs = dict(jobs)
        machine.beat()
        assert Lease.objects.filter(released_at=None).count() == 2
    machine.jobs = {}
    machine.beat()
    clock.forward(6)
    machine.beat()
    assert Lease.objects.filter(released_at=None).count() == 0
