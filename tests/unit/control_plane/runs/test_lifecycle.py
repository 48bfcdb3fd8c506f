"""Runs from submit to end, over the real protocol, with simulated nodes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from control_plane.checkpoints.models import Checkpoint
from control_plane.fleet.models import Lease
from control_plane.runs.lease_reaper import reap_leases
from control_plane.runs.models import Attempt, Job
from control_plane.runs.reconciler import reconcile_runs
from control_plane.runs.scheduling import schedule_runs
from oolong.contracts.lifecycle import EndReason, JobState

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def attempt_of(run: Any) -> Attempt:
    return Attempt.objects.filter(run_id=run["id"]).latest("number")


def complete(node: Any, run: Any, commit_checkpoint: Callable[..., None]) -> None:
    """The work ends as it should: the final checkpoint is committed and stored, every job completes."""
    attempt = attempt_of(run)
    commit_checkpoint(run["id"], attempt.pk, step=60, final=True)
    assert node.upload_checkpoint(attempt.pk, attempt.epoch, step=60, final=True).json()["stored"]
    for name in ("controller", "reward", "rollout-0", "trainer"):
        node.exit(node.job(name), EndReason.COMPLETED)
    node.beat()


def test_a_run_goes_from_the_queue_to_running_with_its_jobs_and_leases(
    alice: Any, node: Any, tick: Any
) -> None:
    machine = node()
    run = alice.run()
    assert (run["status"], run["slots_needed"]) == ("QUEUED", 2)
    tick()
    assert alice.see(run["id"])["status"] == "STARTING"
    (attempt,) = machine.beat().attempts
    assert [job.name for job in attempt.jobs] == ["controller", "reward", "rollout-0", "trainer"]
    assert {job.name: job.slots for job in attempt.jobs}["trainer"] == ["cpu-0"]
    assert set(attempt.ports) == {"controller", "reward", "engine-0"}
    assert len(set(attempt.ports.values())) == 3
    machine.beat()
    run = alice.see(run["id"])
    assert run["status"] == "RUNNING"
    held = {slot["name"]: slot["held_by"]["job"] for slot in alice.get("/pool").json()["slots"]}
    assert held == {"cpu-0": "trainer", "cpu-1": "rollout-0"}


def test_a_completed_run_succeeds_and_gives_its_slots_back(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    complete(machine, run, commit_checkpoint)
    tick()
    run = alice.see(run["id"])
    assert (run["status"], run["reason"], run["conditions"]) == ("SUCCEEDED", "completed", [])
    assert run["latest_checkpoint"]["step"] == 60
    assert not Lease.objects.filter(released_at=None).exists()
    machine.beat()
    machine.beat()
    assert machine.jobs == {}, "acknowledged jobs are forgotten"
    moves = [event["data"]["after"] for event in alice.events(run["id"]) if event["kind"] == "status"]
    assert moves == ["STARTING", "RUNNING", "FINALIZING", "SUCCEEDED"]
    assert all(event["message"] for event in alice.events(run["id"])), "an event that says nothing"


def test_a_run_leaves_finishing_only_when_its_last_lines_are_read(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    attempt = attempt_of(run)
    commit_checkpoint(run["id"], attempt.pk, step=60, final=True)
    machine.upload_checkpoint(attempt.pk, attempt.epoch, step=60, final=True)
    for job_id in list(machine.jobs):
        machine.exit(job_id, EndReason.COMPLETED, shipped=4)
    acknowledged = machine.beat().acknowledged
    assert acknowledged == []
    tick()
    assert alice.see(run["id"])["status"] == "FINALIZING"
    machine.ship_all()
    machine.beat()
    assert alice.see(run["id"])["status"] == "SUCCEEDED"


def test_after_ten_minutes_the_gap_is_shown_instead(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    attempt = attempt_of(run)
    commit_checkpoint(run["id"], attempt.pk, step=60, final=True)
    machine.upload_checkpoint(attempt.pk, attempt.epoch, step=60, final=True)
    for job_id in list(machine.jobs):
        machine.exit(job_id, EndReason.COMPLETED, shipped=4)
    machine.beat()
    tick(550)
    machine.beat()
    assert alice.see(run["id"])["status"] == "FINALIZING"
    tick(100)
    run = alice.see(run["id"])
    assert (run["status"], run["conditions"]) == ("SUCCEEDED", ["GAP"])
    assert "did not arrive" in alice.events(run["id"])[-1]["message"]


def test_a_run_leaves_finishing_only_when_its_final_checkpoint_is_stored(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    attempt = attempt_of(run)
    commit_checkpoint(run["id"], attempt.pk, step=60, final=True)
    for job_id in list(machine.jobs):
        machine.exit(job_id, EndReason.COMPLETED)
    machine.beat()
    tick()
    assert alice.see(run["id"])["status"] == "FINALIZING"
    assert machine.beat().attempts, "the attempt stays named until its checkpoint is stored"
    assert machine.upload_checkpoint(attempt.pk, attempt.epoch, step=60, final=True).json()["stored"]
    assert alice.see(run["id"])["status"] == "SUCCEEDED"
    assert not machine.beat().attempts


def test_a_trainer_that_completes_without_a_checkpoint_is_no_success(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)
    for job_id in list(machine.jobs):
        machine.exit(job_id, EndReason.COMPLETED)
    machine.beat()
    tick()
    run = alice.see(run["id"])
    assert (run["status"], run["reason"]) == ("FAILED", "no_valid_checkpoint")


def test_a_page_of_runs_asks_once_for_their_latest_checkpoints(
    alice: Any, django_assert_num_queries: Any
) -> None:
    alice.run()
    with CaptureQueriesContext(connection) as asked:
        runs = alice.get("/runs").json()["data"]
    of_one_run = len(asked)
    runs += [alice.run(), alice.run()]
    for run, steps in zip(runs, ([20, 9], [5], []), strict=True):
        for step in steps:
            Checkpoint.objects.create(
                project=alice.project, run_id=run["id"], run_name=run["name"], attempt_id="att_1", attempt_number=1,
                node_id="node_1", step=step, manifest_sha256=f"{run['id']} {step}", bytes=1, state="STORED",
                created_at=NOW, stored_at=NOW,
            )  # fmt: skip
    with django_assert_num_queries(of_one_run):
        shown = alice.get("/runs").json()["data"]
    latest = {run["id"]: run["latest_checkpoint"] and run["latest_checkpoint"]["step"] for run in shown}
    assert latest == dict(zip((run["id"] for run in runs), (20, 5, None), strict=True))


def test_a_killed_trainer_gets_a_new_attempt_from_the_last_stored_checkpoint(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    first = attempt_of(run)
    Attempt.objects.filter(pk=first.pk).update(tokens_generated=4321)
    commit_checkpoint(run["id"], first.pk, step=20)
    machine.upload_checkpoint(first.pk, first.epoch, step=20)
    machine.exit(machine.job("trainer"), None, code=-9)
    machine.beat()
    run = alice.see(run["id"])
    assert run["status"] == "RECOVERING"
    assert "killed by signal 9" in run["pending_reason"]
    machine.beat()
    tick()
    tick()
    (attempt,) = [attempt for attempt in machine.beat().attempts if attempt.attempt_number == 2]
    assert attempt.epoch == first.epoch + 1
    assert attempt.tokens_generated_before == 4321
    stored = Checkpoint.objects.get(attempt_id=first.pk)
    assert attempt.resume is not None
    assert attempt.resume.sha256 == stored.tar_sha256
    assert machine.get(f"/artifacts/{stored.tar_sha256}").status_code == 200
    machine.beat()
    run = alice.see(run["id"])
    assert (run["status"], run["attempt_number"], run["train_step"]) == ("RUNNING", 2, 20)


def test_a_recovery_waits_until_the_newest_checkpoint_is_stored(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    first = attempt_of(run)
    commit_checkpoint(run["id"], first.pk, step=20)
    machine.exit(machine.job("trainer"), None, code=1)
    machine.beat()
    machine.beat()
    tick()
    assert alice.see(run["id"])["status"] == "RECOVERING"
    machine.upload_checkpoint(first.pk, first.epoch, step=20)
    tick()
    assert attempt_of(run).resume_checkpoint is not None


def test_without_any_checkpoint_a_recovery_starts_from_the_original_model(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)
    machine.exit(machine.job("controller"), None, code=1)
    machine.beat()
    machine.beat()
    tick()
    assert attempt_of(run).number == 2
    assert attempt_of(run).resume_checkpoint is None


def test_checkpoints_that_cannot_be_had_are_a_clear_failure_and_no_fresh_start(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    lost = node("lost")
    run = start(lost)
    commit_checkpoint(run["id"], attempt_of(run).pk, step=20)
    other = node("other")
    for _ in range(9):
        other.beat()
        tick(12)
    run = alice.see(run["id"])
    assert (run["status"], run["reason"]) == ("FAILED", "no_valid_checkpoint")


def test_a_late_line_of_an_attempt_given_up_long_ago_does_not_forbid_a_fresh_start(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    first = attempt_of(run)
    machine.exit(machine.job("trainer"), None, code=1)
    for _ in range(3):
        machine.beat()
        tick()
    machine.beat()
    assert attempt_of(run).number == 2
    commit_checkpoint(run["id"], first.pk, step=20)
    machine.exit(machine.job("trainer"), None, code=1)
    for _ in range(3):
        machine.beat()
        tick(6)
    assert (attempt_of(run).number, attempt_of(run).resume_checkpoint) == (3, None)


def test_the_users_own_faults_use_up_the_attempts(alice: Any, node: Any, start: Any, tick: Any) -> None:
    machine = node()
    run = start(machine, budget={"max_attempts": 2})
    machine.exit(machine.job("trainer"), None, code=1)
    for _ in range(4):
        machine.beat()
        tick()
    assert alice.see(run["id"])["attempt_number"] == 2
    machine.exit(machine.job("trainer"), None, code=1, message="out of memory")
    for _ in range(3):
        machine.beat()
        tick()
    run = alice.see(run["id"])
    assert (run["status"], run["reason"], run["fault"]) == ("FAILED", "trainer_crashed", "user")
    assert "out of memory" in run["reason_message"]
    assert run["advice"]


def test_a_cause_that_is_never_retried_fails_the_run_and_stops_its_jobs(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)
    machine.exit(machine.job("trainer"), EndReason.NONFINITE_LOSS, code=1, message="three steps")
    machine.beat()
    assert alice.see(run["id"])["status"] == "FINALIZING"
    machine.beat()
    machine.beat()
    tick()
    run = alice.see(run["id"])
    assert (run["status"], run["reason"], run["fault"]) == ("FAILED", "nonfinite_loss", "config")
    assert not Lease.objects.filter(released_at=None).exists()


def test_stop_asks_the_trainer_first_and_ends_with_its_checkpoint(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    attempt = attempt_of(run)
    assert alice.post(f"/runs/{run['id']}/stop").status_code == 202
    asked = set(Job.objects.exclude(stop_asked_at=None).values_list("name", flat=True))
    assert asked == {"trainer"}
    machine.beat()
    commit_checkpoint(run["id"], attempt.pk, step=7)
    machine.upload_checkpoint(attempt.pk, attempt.epoch, step=7)
    machine.beat()
    assert alice.see(run["id"])["status"] == "STOPPING"
    tick(25)
    machine.beat()
    machine.beat()
    run = alice.see(run["id"])
    assert (run["status"], run["reason"], run["fault"]) == ("STOPPED", "stopped_by_user", "none")
    assert run["latest_checkpoint"]["step"] == 7
    said = [event["message"] for event in alice.events(run["id"]) if event["kind"] == "job"]
    assert "rollout-0 exited: stopped as requested" in said


def test_a_stopped_run_is_never_failed_even_if_its_trainer_dies_of_it(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)
    alice.post(f"/runs/{run['id']}/stop")
    machine.exit(machine.job("trainer"), None, code=-11)
    machine.beat()
    tick()
    assert not Job.objects.filter(stop_asked_at=None).exists(), "the others wait for a trainer that is dead"
    for _ in range(4):
        machine.beat()
        tick(25)
    assert alice.see(run["id"])["status"] == "STOPPED"


def test_a_job_stopped_before_its_node_received_it_counts_as_never_started(
    alice: Any, node: Any, tick: Any
) -> None:
    machine = node()
    run = alice.run()
    tick()
    alice.post(f"/runs/{run['id']}/stop")
    machine.beat()
    for _ in range(10):
        machine.beat()
        tick(10)
    assert alice.see(run["id"])["status"] == "STOPPED"


def test_a_queued_run_is_cancelled_at_once_and_an_ended_one_is_not(alice: Any) -> None:
    queued = alice.run()
    cancelled = alice.post(f"/runs/{queued['id']}/cancel")
    assert cancelled.status_code == 202
    assert (cancelled.json()["status"], cancelled.json()["reason"]) == ("STOPPED", "cancelled_while_queued")
    for verb in ("stop", "cancel", "force-stop"):
        late = alice.post(f"/runs/{queued['id']}/{verb}")
        assert (late.status_code, late.json()["code"]) == (409, "has_ended")


def test_of_two_runs_with_slots_for_one_the_second_waits_with_a_reason_and_starts_after(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    first = start(machine)
    second = alice.run(name="the second")
    tick()
    second = alice.see(second["id"])
    assert second["status"] == "QUEUED"
    assert second["pending_reason"] == "needs 2 slots on one node; 0 of 2 are free on node-1"
    assert second["queue_position"] == 1
    (entry,) = alice.get("/pool").json()["queue"]
    assert entry["why"] == second["pending_reason"]
    complete(machine, first, commit_checkpoint)
    tick()
    assert alice.see(second["id"])["status"] == "STARTING"
    machine.beat()
    machine.beat()
    assert alice.see(second["id"])["status"] == "RUNNING"


def test_a_team_at_its_limit_waits_and_the_limit_is_named(alice: Any, node: Any, tick: Any) -> None:
    node(slots=4)
    alice.call("PUT", f"/pools/default/teams/{alice.project.team_id}/quota", {"limit_slots": 1})
    run = alice.run()
    tick()
    assert "limit is 1 slot," in alice.see(run["id"])["pending_reason"]
    alice.call("PUT", f"/pools/default/teams/{alice.project.team_id}/quota", {"limit_slots": None})
    tick()
    assert alice.see(run["id"])["status"] == "STARTING"


def test_a_cordoned_node_keeps_its_run_and_gets_no_new_one(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node(slots=4)
    running = start(machine)
    assert alice.post(f"/pool/nodes/{machine.node_id}/cordon").json()["status"] == "CORDONED"
    waiting = alice.run()
    tick()
    assert alice.see(running["id"])["status"] == "RUNNING"
    assert "node-1 is cordoned" in alice.see(waiting["id"])["pending_reason"]
    alice.post(f"/pool/nodes/{machine.node_id}/uncordon")
    tick()
    assert alice.see(waiting["id"])["status"] == "STARTING"


def test_a_drained_node_gives_its_run_away_with_a_checkpoint(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    leaving = node("leaving")
    run = start(leaving)
    staying = node("staying")
    first = attempt_of(run)
    alice.post(f"/pool/nodes/{leaving.node_id}/drain")
    tick()
    commit_checkpoint(run["id"], first.pk, step=5)
    leaving.upload_checkpoint(first.pk, first.epoch, step=5)
    for _ in range(4):
        leaving.beat()
        tick()
    second = attempt_of(run)
    assert (second.number, second.node_id) == (2, staying.node_id)
    assert second.resume_checkpoint is not None


def test_wall_time_stops_a_run_with_a_checkpoint(alice: Any, node: Any, start: Any, tick: Any) -> None:
    machine = node()
    run = start(machine, budget={"max_wall_seconds": 60})
    for _ in range(10):
        machine.beat()
        tick(10)
    for _ in range(3):
        machine.beat()
        tick(10)
    run = alice.see(run["id"])
    assert (run["status"], run["reason"]) == ("STOPPED", "wall_time_exceeded")


def test_an_engine_that_was_restarted_in_place_does_not_end_the_attempt(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    import msgspec

    machine = node()
    run = start(machine)
    job = machine.job("rollout-0")
    machine.jobs[job] = msgspec.structs.replace(machine.jobs[job], incarnation=1, pid=2)
    machine.beat()
    tick()
    assert alice.see(run["id"])["status"] == "RUNNING"
    assert any("restarted in place (1 of 3)" in event["message"] for event in alice.events(run["id"]))


def test_ticks_that_run_twice_or_are_lost_change_nothing(
    alice: Any, node: Any, start: Any, tick: Any, clock: Any
) -> None:
    machine = node()
    run = start(machine)
    before = alice.events(run["id"])
    for _ in range(3):
        schedule_runs(now=clock.now)
        reconcile_runs(now=clock.now)
        reap_leases(now=clock.now)
        machine.beat()
    assert alice.events(run["id"]) == before
    assert Attempt.objects.filter(run_id=run["id"]).count() == 1


def test_a_repeated_or_stale_heartbeat_changes_nothing(alice: Any, node: Any, start: Any) -> None:
    import msgspec

    machine = node()
    run = start(machine)
    trainer = machine.job("trainer")
    machine.jobs[trainer] = msgspec.structs.replace(
        machine.jobs[trainer], epoch=0, state=JobState.EXITED, reason=EndReason.NODE_LOST
    )
    machine.beat()
    assert alice.see(run["id"])["status"] == "RUNNING", "a report of another epoch is not about this attempt"


def test_a_late_report_without_a_job_is_forgotten_when_the_next_one_names_it(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)
    jobs, machine.jobs, machine.silent_about_new = machine.jobs, {}, True
    for _ in range(3):
        machine.jobs = {}
        machine.beat()
        machine.jobs = jobs
        machine.beat()
        tick(4)
    assert alice.see(run["id"])["status"] == "RUNNING"


def test_a_job_that_its_node_no_longer_knows_is_lost(alice: Any, node: Any, start: Any, tick: Any) -> None:
    machine = node()
    run = start(machine)
    machine.jobs.clear()
    machine.silent_about_new = True
    machine.beat()
    assert alice.see(run["id"])["status"] == "RUNNING", "one late report without it proves nothing"
    tick(6)
    machine.beat()
    run = alice.see(run["id"])
    assert run["status"] == "RECOVERING"
    assert "no longer has the job" in run["pending_reason"]


@pytest.mark.parametrize("end", ["stop", "cancel", "force-stop", "submit"])
def test_asking_for_an_end_of_what_is_not_there_is_404(alice: Any, end: str) -> None:
    assert alice.post(f"/runs/run_nothing/{end}").status_code == 404
