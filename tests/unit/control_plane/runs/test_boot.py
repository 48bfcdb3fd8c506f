"""The boot of a run as a checklist: every stage has its times, and the one that it has come to says what is missing."""

from __future__ import annotations

from typing import Any

import msgspec

from control_plane.runs.models import Attempt, Job, Run
from control_plane.telemetry.ingest import outbox
from oolong.contracts.lifecycle import EndReason, JobState
from oolong.contracts.telemetry import Note, StateSnapshot


def states(run: Any) -> dict[str, str]:
    return {stage["name"]: stage["state"] for stage in run["boot"]["stages"]}


def stage(run: Any, name: str) -> Any:
    return next(stage for stage in run["boot"]["stages"] if stage["name"] == name)


def ship(run: Any, job_name: str, *lines: Any, offset: int = 0) -> int:
    job = Job.objects.get(attempt__run_id=run["id"], name=job_name)
    body = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    return outbox.ingest_outbox(job.pk, "main-0.jsonl", offset=offset, body=body)


def milestones(**at: float) -> StateSnapshot:
    return StateSnapshot(at=1.0, name="pipeline", value={"milestones": at})


def test_each_stage_ends_when_the_next_one_begins(alice: Any, node: Any, start: Any, tick: Any) -> None:
    machine = node()
    run = alice.run()
    assert states(alice.see(run["id"])) == {
        "queue": "active", "node": "waiting", "inputs": "waiting", "engine": "waiting", "rollouts": "waiting",
        "batch": "waiting", "step": "waiting",
    }  # fmt: skip
    tick()
    shown = alice.see(run["id"])
    assert list(states(shown).values())[:3] == ["done", "active", "waiting"]
    machine.beat()
    machine.beat()
    shown = alice.see(run["id"])
    assert (shown["status"], states(shown)["inputs"], states(shown)["engine"]) == (
        "RUNNING",
        "done",
        "active",
    )
    began = Attempt.objects.get(run_id=run["id"]).created_at.timestamp()
    told = {"trainer_ready": began + 30, "engine_serves": began + 40}
    offset = ship(run, "controller", milestones(**told))
    assert list(states(alice.see(run["id"])).values())[3:] == ["done", "active", "waiting", "waiting"]
    told |= {"first_group": began + 50, "first_batch": began + 60, "first_step": began + 61}
    ship(run, "controller", milestones(**told), offset=offset)
    shown = alice.see(run["id"])
    assert shown["boot"]["done"] and shown["boot"]["attempt_number"] == 1
    stages = shown["boot"]["stages"]
    assert all(one["started_at"] and one["ended_at"] for one in stages)
    assert [one["ended_at"] for one in stages[:-1]] == [one["started_at"] for one in stages[1:]]


def test_a_queued_run_says_what_it_waits_for(alice: Any, node: Any, tick: Any) -> None:
    node()
    run = alice.run(trainer={"num_ranks": 7})
    tick()
    shown = alice.see(run["id"])
    assert stage(shown, "queue")["state"] == "active"
    assert stage(shown, "queue")["detail"] == shown["pending_reason"] != ""


def test_fetched_bytes_of_the_inputs_are_shown(alice: Any, node: Any, tick: Any) -> None:
    machine = node()
    run = alice.run()
    tick()
    machine.beat()
    for job_id, job in machine.jobs.items():
        machine.jobs[job_id] = msgspec.structs.replace(
            job, state=JobState.PREPARING, fetched_bytes=30_000_000, input_bytes=120_000_000
        )
    machine.beat()
    inputs = stage(alice.see(run["id"]), "inputs")
    assert (inputs["state"], inputs["detail"]) == ("active", "30.0 MB of 120.0 MB")


def test_an_engine_that_fails_to_boot_says_so_and_a_failed_attempt_marks_its_stage(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)
    ship(run, "rollout-0", Note(at=1.0, kind="engine_boot_failed", message="it ended with status 1"))
    engine = stage(alice.see(run["id"]), "engine")
    assert engine["state"] == "active"
    assert engine["detail"] == "boot failed, retrying: rollout-0: it ended with status 1"
    for name in ("controller", "reward", "trainer"):
        machine.exit(machine.job(name), EndReason.STOPPED_BY_USER)
    machine.exit(machine.job("rollout-0"), EndReason.CONFIG_REJECTED, message="no such model type")
    for _ in range(4):
        machine.beat()
        tick(60)
    shown = alice.see(run["id"])
    assert shown["status"] == "FAILED"
    assert states(shown) == {
        "queue": "done", "node": "done", "inputs": "done", "engine": "failed", "rollouts": "waiting",
        "batch": "waiting", "step": "waiting",
    }  # fmt: skip
    assert "no such model type" in stage(shown, "engine")["detail"]
    assert not shown["boot"]["done"]


def test_a_train_step_is_proof_of_the_boot_where_a_node_tells_of_no_milestones(
    alice: Any, node: Any, start: Any
) -> None:
    run = start(node())
    assert states(alice.see(run["id"]))["engine"] == "active"
    Run.objects.filter(pk=run["id"]).update(train_step=3)
    assert alice.see(run["id"])["boot"]["done"]


def test_a_train_step_that_is_seen_before_its_milestone_ends_no_stage_before_it_begins(
    alice: Any, node: Any, start: Any
) -> None:
    run = start(node())
    began = Attempt.objects.get(run_id=run["id"]).created_at.timestamp()
    told = {"engine_serves": began + 190, "first_group": began + 240, "first_batch": began + 270}
    ship(run, "controller", milestones(trainer_ready=began + 30, **told))
    Run.objects.filter(pk=run["id"]).update(train_step=1)
    step = stage(alice.see(run["id"]), "step")
    assert step["state"] == "done" and step["started_at"] <= step["ended_at"]


def test_a_draft_has_no_boot(alice: Any) -> None:
    spec = {"name": "later", "model": {"base_model": "m"}, "dataset": {"version": "d"}}
    draft = alice.post("/runs", {"spec": spec, "draft": True}).json()
    assert draft["boot"] is None
