"""Playgrounds: a run of kind playground per side, behind every run, and gone when one needs the slot."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from control_plane.accounts.models import Role
from control_plane.checkpoints.models import Checkpoint, CheckpointState
from control_plane.core.stream import event_stream
from control_plane.experiments import playgrounds
from control_plane.experiments.models import Playground
from control_plane.fleet.models import Lease
from control_plane.runs import telemetry_hooks
from control_plane.runs.models import Job, Run
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.telemetry import Progress

ONE = {"models": [{"base_model": "tiny"}]}
EVAL = {"kind": "eval", "dataset": {"version": "sums@1", "split": "eval"}, "evaluation": {"prompts": 8}}


@pytest.fixture
def checkpoint(alice: Any, clock: Any) -> Checkpoint:
    return Checkpoint.objects.create(
        project=alice.project, run_id="run_x", run_name="letters", attempt_id="att_x", attempt_number=1,
        node_id="node_1", step=20, manifest_sha256="0" * 64, tar_sha256="1" * 64, bytes=1,
        state=CheckpointState.STORED, created_at=clock.now,
    )  # fmt: skip


def opened(who: Any, **body: Any) -> Any:
    reply = who.post("/playgrounds", {**ONE, **body})
    assert reply.status_code == 201, reply.content
    return reply.json()


def see(who: Any, playground: Any) -> Any:
    return who.get(f"/playgrounds/{playground['id']}").json()


def chats(run_id: str) -> None:
    """What telemetry does with the job's word that its engine serves."""
    job = Job.objects.select_related("attempt__run").get(attempt__run_id=run_id, name="rollout-0")
    telemetry_hooks.record_progress(job, Progress(phase="chat", done=1, total=1), event_stream.EventBatch())


def settle(machine: Any, tick: Any, rounds: int = 3) -> None:
    for _ in range(rounds):
        tick()
        machine.beat()
        machine.ship_all()


def test_two_sides_take_a_slot_each_and_the_second_says_why_it_waits(
    alice: Any, node: Any, tick: Any, checkpoint: Checkpoint
) -> None:
    machine = node(slots=1)
    playground = opened(alice, models=[{"checkpoint": checkpoint.pk}, {"base_model": "tiny"}])
    settle(machine, tick)
    first, second = see(alice, playground)["sides"]
    assert (first["status"], first["ready"], first["pending_reason"]) == (
        "RUNNING",
        False,
        "the engine is starting",
    )
    assert (second["status"], second["ready"]) == ("QUEUED", False)
    assert "needs 1 slot on" in second["pending_reason"]
    chats(first["run"])
    first = see(alice, playground)["sides"][0]
    assert (first["ready"], first["model"]["id"]) == (True, checkpoint.pk)
    assert first["base_url"] == f"/api/v1/runs/{first['run']}/playground"
    lineage = alice.get(f"/checkpoints/{checkpoint.pk}/lineage")
    assert lineage.status_code == 200, "a run without rows is no gap in the lineage"


def test_its_node_gets_one_engine_and_an_empty_dataset(alice: Any, node: Any, tick: Any) -> None:
    machine, other = node(slots=1), node("node-2", slots=0)
    opened(alice)
    tick()
    (attempt,) = machine.beat().attempts
    assert [job.name for job in attempt.jobs] == ["rollout-0"]
    assert set(attempt.ports) == {"engine-0", "playground-0"}
    assert attempt.dataset.sha256 == hashlib.sha256(b"\n").hexdigest()
    reply = machine.get(f"/artifacts/{attempt.dataset.sha256}")
    assert b"".join(reply.streaming_content) == b"\n"
    assert other.get(f"/artifacts/{attempt.dataset.sha256}").status_code == 404


def test_with_a_reward_there_is_a_reward_service(alice: Any, node: Any, tick: Any) -> None:
    machine = node(slots=1)
    opened(alice, reward={"name": "exact_match"})
    tick()
    (attempt,) = machine.beat().attempts
    assert [job.name for job in attempt.jobs] == ["reward", "rollout-0"]
    assert set(attempt.ports) == {"reward", "engine-0", "playground-0"}


def test_an_idle_one_gives_its_slot_back(alice: Any, node: Any, tick: Any) -> None:
    machine = node(slots=1)
    playground = opened(alice)
    settle(machine, tick)
    machine.exit(machine.job("rollout-0"), EndReason.COMPLETED, shipped=10)
    settle(machine, tick)
    seen = see(alice, playground)
    assert (seen["open"], seen["sides"][0]["status"], seen["sides"][0]["reason"]) == (
        False,
        "SUCCEEDED",
        "completed",
    )
    assert not Lease.objects.filter(released_at=None).exists()


def test_closing_ends_both_sides_and_may_be_repeated(alice: Any, node: Any, tick: Any) -> None:
    machine = node(slots=1)
    playground = opened(alice, models=[{"base_model": "tiny"}, {"base_model": "tiny"}])
    settle(machine, tick)
    for _ in range(2):
        assert alice.call("DELETE", f"/playgrounds/{playground['id']}").status_code == 204
    settle(machine, tick)
    assert [side["status"] for side in see(alice, playground)["sides"]] == ["STOPPED", "STOPPED"]
    assert not Lease.objects.filter(released_at=None).exists()


def test_a_run_that_waits_gets_the_slot(alice: Any, node: Any, tick: Any) -> None:
    machine = node(slots=1)
    playground = opened(alice)
    settle(machine, tick)
    run = alice.run(**EVAL)
    settle(machine, tick, rounds=5)
    side = see(alice, playground)["sides"][0]
    assert (side["status"], side["reason"]) == ("STOPPED", "preempted")
    assert alice.see(run["id"])["status"] == "RUNNING"
    assert alice.see(side["run"])["fault"] == "none", "who is preempted has not failed"


def test_one_playground_does_not_end_another(alice: Any, node: Any, tick: Any) -> None:
    machine = node(slots=1)
    first = opened(alice)
    settle(machine, tick)
    second = opened(alice)
    settle(machine, tick)
    assert see(alice, first)["sides"][0]["status"] == "RUNNING"
    assert see(alice, second)["sides"][0]["status"] == "QUEUED"


def test_a_run_that_would_not_fit_even_then_takes_nothing(alice: Any, node: Any, tick: Any) -> None:
    machine = node(slots=1)
    playground = opened(alice)
    settle(machine, tick)
    alice.run()  # two slots, and the node has one
    settle(machine, tick)
    assert see(alice, playground)["sides"][0]["status"] == "RUNNING"


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({"models": []}, "/models", "min_length"),
        ({"models": [{"base_model": "tiny"}] * 3}, "/models", "max_length"),
        ({"models": [{"base_model": "tiny"}, {"checkpoint": "none"}]}, "/models/1/checkpoint", "unknown_checkpoint"),
        ({"models": [{}]}, "/models/0/checkpoint", "one_of"),
        ({"models": [{"base_model": "tiny", "checkpoint": "x"}]}, "/models/0/checkpoint", "one_of"),
        ({"idle_seconds": 1}, "/idle_seconds", "min_value"),
        ({"reward": {"name": "nice"}}, "/reward/name", "unknown_reward"),
    ],
)  # fmt: skip
def test_an_odd_playground_is_refused_and_nothing_is_queued(
    alice: Any, body: Any, pointer: str, code: str
) -> None:
    refused = alice.post("/playgrounds", {**ONE, **body})
    assert refused.status_code == 422
    assert (pointer, code) in {(error["pointer"], error["code"]) for error in refused.json()["errors"]}
    assert not Playground.objects.exists() and not Run.objects.exists()


def test_it_is_no_run_that_one_submits_or_clones(alice: Any) -> None:
    run = opened(alice)["sides"][0]["run"]
    refused = alice.post(f"/runs/{run}/clone", {})
    assert [(e["pointer"], e["code"]) for e in refused.json()["errors"]] == [("/kind", "not_a_run")]


def test_a_viewer_opens_none_and_another_team_sees_none(alice: Any, person: Any) -> None:
    playground = opened(alice)
    viewer, charlie = person("vera", role=Role.VIEWER), person("charlie", team="blue")
    assert viewer.post("/playgrounds", ONE).json()["code"] == "missing_scope"
    assert viewer.call("DELETE", f"/playgrounds/{playground['id']}").json()["code"] == "missing_scope"
    assert viewer.get(f"/playgrounds/{playground['id']}").status_code == 200
    assert charlie.get(f"/playgrounds/{playground['id']}").status_code == 404
    assert charlie.call("DELETE", f"/playgrounds/{playground['id']}").status_code == 404


def test_a_side_that_ends_meanwhile_is_not_in_the_way_of_the_other(
    alice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    playground = opened(alice, models=[{"base_model": "tiny"}, {"base_model": "tiny"}])
    stop_run = playgrounds.stop_run

    def ended_first(run_id: str, **given: Any) -> Any:
        if run_id == playground["sides"][0]["run"]:
            Run.objects.filter(pk=run_id).update(status="SUCCEEDED")
        return stop_run(run_id, **given)

    monkeypatch.setattr(playgrounds, "stop_run", ended_first)
    assert alice.call("DELETE", f"/playgrounds/{playground['id']}").status_code == 204
    assert [side["status"] for side in see(alice, playground)["sides"]] == ["SUCCEEDED", "STOPPED"]
