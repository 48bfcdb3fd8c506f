"""Paused runs hold nothing and go on where they were; runs are made from runs."""

from __future__ import annotations

from typing import Any

import pytest

from control_plane.fleet.models import Lease
from control_plane.runs.cloning import merge_patch
from control_plane.runs.models import Attempt, Run
from oolong.contracts.lifecycle import EndReason


def attempt_of(run: Any) -> Attempt:
    return Attempt.objects.filter(run_id=run["id"]).latest("number")


def store_checkpoint(machine: Any, run: Any, commit_checkpoint: Any, *, step: int) -> None:
    attempt = attempt_of(run)
    commit_checkpoint(run["id"], attempt.pk, step=step)
    machine.upload_checkpoint(attempt.pk, attempt.epoch, step=step)


def end_jobs(machine: Any, tick: Any) -> None:
    """Jobs asked to stop exit, and those that wait for a dead trainer are asked after a while."""
    for _ in range(5):
        machine.beat()
        tick(9)
    machine.beat()
    tick()


def pause(alice: Any, machine: Any, tick: Any, run: Any, commit_checkpoint: Any, *, step: int = 7) -> Any:
    """Asked for, the checkpoint taken and stored, the jobs gone."""
    reply = alice.post(f"/runs/{run['id']}/pause")
    assert (reply.status_code, reply.json()["status"]) == (202, "PAUSING")
    store_checkpoint(machine, run, commit_checkpoint, step=step)
    end_jobs(machine, tick)
    return alice.see(run["id"])


def test_a_paused_run_gives_its_slots_back_and_resumes_from_its_checkpoint(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    run = pause(alice, machine, tick, run, commit_checkpoint)
    assert (run["status"], run["reason"], run["fault"]) == ("PAUSED", "paused_by_user", "none")
    assert run["conditions"] == [], "a pause that somebody asked for needs nobody's attention"
    assert "step 7" in run["reason_message"] and run["ended_at"] is None
    assert not Lease.objects.filter(released_at=None).exists()
    other = alice.run()
    tick()
    assert alice.see(other["id"])["status"] == "STARTING", "another run has the slots"
    alice.post(f"/runs/{other['id']}/stop")
    end_jobs(machine, tick)

    resumed = alice.post(f"/runs/{run['id']}/resume").json()
    assert (resumed["status"], resumed["reason"]) == ("QUEUED", "")
    tick()
    machine.beat()
    machine.beat()
    run = alice.see(run["id"])
    assert (run["status"], run["attempt_number"], run["train_step"]) == ("RUNNING", 2, 7)
    checkpoint = attempt_of(run).resume_checkpoint
    assert checkpoint is not None and checkpoint.step == 7
    moves = [event["data"]["after"] for event in alice.events(run["id"]) if event["kind"] == "status"]
    assert moves == ["STARTING", "RUNNING", "PAUSING", "PAUSED", "QUEUED", "STARTING", "RUNNING"]


def test_the_time_of_a_pause_is_not_wall_time_of_the_budget(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine, budget={"max_wall_seconds": 300})
    run = pause(alice, machine, tick, run, commit_checkpoint)
    tick(10_000)
    machine.beat()
    assert alice.post(f"/runs/{run['id']}/resume").status_code == 202
    for _ in range(4):
        tick(5)
        machine.beat()
    assert alice.see(run["id"])["status"] == "RUNNING"
    for _ in range(40):
        tick(10)
        machine.beat()
    assert alice.see(run["id"])["reason"] == "wall_time_exceeded"


def test_a_queued_run_is_paused_at_once_and_waits_for_nobody(alice: Any, node: Any, tick: Any) -> None:
    run = alice.run()
    assert alice.post(f"/runs/{run['id']}/pause").json()["status"] == "PAUSED"
    node()
    tick()
    assert alice.see(run["id"])["status"] == "PAUSED"
    alice.post(f"/runs/{run['id']}/resume")
    tick()
    assert alice.see(run["id"])["status"] == "STARTING"


def test_asked_twice_a_pause_changes_nothing_and_what_has_ended_or_runs_says_so(
    alice: Any, node: Any, start: Any
) -> None:
    run = start(node())
    refused = alice.post(f"/runs/{run['id']}/resume")
    assert (refused.status_code, refused.json()["code"]) == (409, "not_paused")
    assert "RUNNING" in refused.json()["detail"]
    first, second = (alice.post(f"/runs/{run['id']}/pause") for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 202)
    waiting = alice.run()
    alice.post(f"/runs/{waiting['id']}/cancel")
    refused = alice.post(f"/runs/{waiting['id']}/pause")
    assert (refused.status_code, refused.json()["code"]) == (409, "cannot_pause")


def test_a_stop_wins_over_a_pause_and_ends_a_paused_run(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    alice.post(f"/runs/{run['id']}/pause")
    assert alice.post(f"/runs/{run['id']}/stop").json()["status"] == "STOPPING"
    end_jobs(machine, tick)
    assert alice.see(run["id"])["status"] == "STOPPED"
    paused = pause(alice, machine, tick, start(machine), commit_checkpoint)
    ended = alice.post(f"/runs/{paused['id']}/stop").json()
    assert (ended["status"], ended["reason"]) == ("STOPPED", "stopped_by_user")


def test_work_that_completes_while_a_pause_is_asked_for_is_a_success(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    attempt = attempt_of(run)
    commit_checkpoint(run["id"], attempt.pk, step=60, final=True)
    machine.upload_checkpoint(attempt.pk, attempt.epoch, step=60, final=True)
    alice.post(f"/runs/{run['id']}/pause")
    for name in ("controller", "reward", "rollout-0", "trainer"):
        machine.exit(machine.job(name), EndReason.COMPLETED)
    machine.beat()
    tick()
    assert alice.see(run["id"])["status"] == "SUCCEEDED"


def test_a_trainer_killed_during_a_pause_leaves_the_run_at_its_last_checkpoint(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    store_checkpoint(machine, run, commit_checkpoint, step=5)
    alice.post(f"/runs/{run['id']}/pause")
    machine.exit(machine.job("trainer"), None, code=-9)
    end_jobs(machine, tick)
    run = alice.see(run["id"])
    assert (run["status"], run["attempt_number"]) == ("PAUSED", 1)
    assert "step 5" in run["reason_message"]


def test_a_reward_that_errs_too_often_rests_the_run_with_a_checkpoint_and_its_reason(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    said = "4 of 100 completions of the last five minutes got no score"
    machine.exit(machine.job("reward"), EndReason.REWARD_ERROR_RATE, code=1, message=said)
    machine.beat()
    assert alice.see(run["id"])["status"] == "PAUSING"
    store_checkpoint(machine, run, commit_checkpoint, step=11)
    end_jobs(machine, tick)
    run = alice.see(run["id"])
    assert (run["status"], run["reason"], run["fault"]) == ("PAUSED", "reward_error_rate", "reward")
    assert run["conditions"] == ["NEEDS_ATTENTION"]
    assert said in run["reason_message"] and "step 11" in run["reason_message"] and "Resume" in run["advice"]
    alice.post(f"/runs/{run['id']}/resume")
    tick()
    machine.beat()
    machine.beat()
    run = alice.see(run["id"])
    assert (run["status"], run["reason"], run["train_step"]) == ("RUNNING", "", 11)


def test_a_retry_goes_on_from_the_checkpoint_of_the_run_that_failed(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    store_checkpoint(machine, run, commit_checkpoint, step=9)
    machine.exit(machine.job("trainer"), EndReason.NONFINITE_LOSS, code=1)
    end_jobs(machine, tick)
    assert alice.see(run["id"])["status"] == "FAILED"

    reply = alice.post(f"/runs/{run['id']}/retry")
    again = reply.json()
    assert reply.status_code == 201 and again["status"] == "QUEUED"
    assert again["parent"] == {"id": run["id"], "name": run["name"], "relation": "retry"}
    assert again["spec"] == run["spec"]
    tick()
    (attempt,) = [one for one in machine.beat().attempts if one.run_id == again["id"]]
    assert attempt.resume is not None
    checkpoint = attempt_of(again).resume_checkpoint
    assert checkpoint is not None and checkpoint.run_id == run["id"]
    machine.beat()
    assert alice.see(again["id"])["train_step"] == 9


def test_only_failed_and_stopped_runs_are_retried(alice: Any) -> None:
    run = alice.run()
    refused = alice.post(f"/runs/{run['id']}/retry")
    assert (refused.status_code, refused.json()["code"]) == (409, "not_retryable")
    alice.post(f"/runs/{run['id']}/cancel")
    assert alice.post(f"/runs/{run['id']}/retry").json()["parent"]["relation"] == "retry"


def test_a_clone_takes_the_spec_with_changes_and_a_fork_takes_the_weights(
    alice: Any, node: Any, start: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    changes = {"name": "wider", "staleness": {"max": 8}, "trainer": {"learning_rate": None}}
    clone = alice.post(f"/runs/{run['id']}/clone", {"changes": changes}).json()
    assert (clone["name"], clone["spec"]["staleness"]["max"]) == ("wider", 8)
    assert clone["spec"]["rollout"] == run["spec"]["rollout"]
    assert clone["parent"]["relation"] == "clone"

    refused = alice.post(f"/runs/{run['id']}/clone", {"checkpoint": "latest"})
    assert refused.status_code == 422 and refused.json()["errors"][0]["pointer"] == "/checkpoint"
    store_checkpoint(machine, run, commit_checkpoint, step=5)
    fork = alice.post(f"/runs/{run['id']}/clone", {"checkpoint": "latest"}).json()
    assert fork["model"]["kind"] == "checkpoint" and fork["parent"]["relation"] == "fork"
    assert Run.objects.get(pk=fork["id"]).resume_checkpoint is None, "its optimizer and data order start over"


def test_a_change_that_makes_no_valid_spec_is_refused_with_its_field(alice: Any) -> None:
    run = alice.run()
    refused = alice.post(f"/runs/{run['id']}/clone", {"changes": {"staleness": {"maximum": 8}}})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/staleness/maximum"
    assert alice.post(f"/runs/{run['id']}/clone", {"change": {}}).json()["errors"][0]["code"] == "unknown_key"
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [({"staleness": {"maximum": None}}, "/staleness/maximum"), ({"stalenes": None}, "/stalenes")],
)
def test_a_misspelled_key_set_to_null_is_refused_by_name(
    alice: Any, changes: dict[str, Any], pointer: str
) -> None:
    run = alice.run()
    cloned = alice.post(f"/runs/{run['id']}/clone", {"changes": changes})
    assert (cloned.status_code, cloned.json()["code"]) == (422, "spec_invalid")
    [error] = cloned.json()["errors"]
    assert (error["pointer"], error["code"]) == (pointer, "unknown_key")
    assert f"unknown key {pointer.rsplit('/', 1)[1]!r}" in error["message"]
    assert Run.objects.count() == 1


def test_name_notes_tags_and_the_priority_of_a_waiting_run_can_be_edited(
    alice: Any, node: Any, start: Any
) -> None:
    run = alice.run()
    fields = {"name": "better", "notes": "why", "tags": ["ablation", "eta:4"], "priority": 900}
    edited = alice.call("PATCH", f"/runs/{run['id']}", fields).json()
    assert {name: edited[name] for name in fields} == fields
    assert [found["id"] for found in alice.get("/runs?tag=ablation").json()["data"]] == [run["id"]]
    assert alice.get("/runs?tag=other").json()["data"] == []
    assert alice.events(run["id"])[-1]["kind"] == "edited"
    clone = alice.post(f"/runs/{run['id']}/clone", {}).json()
    assert clone["tags"] == ["ablation", "eta:4"]
    alice.post(f"/runs/{clone['id']}/cancel")
    alice.post(f"/runs/{run['id']}/cancel")

    running = start(node())
    refused = alice.call("PATCH", f"/runs/{running['id']}", {"priority": 1})
    assert (refused.status_code, refused.json()["code"]) == (409, "not_waiting")
    refused = alice.call("PATCH", f"/runs/{running['id']}", {"tags": ["no spaces"]})
    assert refused.status_code in (400, 422) and refused.json()["errors"][0]["pointer"].startswith("/tags")


def test_another_project_sees_nothing_of_it(alice: Any, person: Any) -> None:
    run = alice.run()
    charlie = person("charlie", team="blue")
    for verb in ("pause", "resume", "clone", "retry"):
        assert charlie.post(f"/runs/{run['id']}/{verb}", {}).status_code == 404
    assert charlie.call("PATCH", f"/runs/{run['id']}", {"name": "mine"}).status_code == 404


def test_a_patch_merges_objects_replaces_the_rest_and_null_removes() -> None:
    before = {"a": {"b": 1, "c": [1, 2]}, "d": 4}
    assert merge_patch(before, {"a": {"c": [3], "e": {"f": None, "g": 1}}, "d": None}) == {
        "a": {"b": 1, "c": [3], "e": {"g": 1}}
    }
    assert before == {"a": {"b": 1, "c": [1, 2]}, "d": 4}
