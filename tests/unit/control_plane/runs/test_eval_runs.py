"""Eval runs: one slot, no trainer, no checkpoint of their own, and what they measure is recorded for the checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from control_plane.checkpoints.models import Checkpoint, CheckpointState
from control_plane.fleet.models import Lease, Liveness, Node
from control_plane.runs import telemetry_hooks
from control_plane.runs.evaluation import evaluation_metrics, unknown_metric_message
from control_plane.runs.models import Attempt, Run
from oolong.contracts.lifecycle import EndReason, JobState

SPEC = {"kind": "eval", "dataset": {"version": "sums@1", "split": "eval"}, "evaluation": {"prompts": 64}}
SCORES = {
    "version": 0, "prompts": 64, "accuracy": 0.75, "accuracy_interval": [0.63, 0.84], "greedy": 0.75, "sampled": None,
    "pass_at": {"1": {"value": 0.75, "low": 0.6, "high": 0.8}},
}  # fmt: skip


@pytest.fixture
def checkpoint(alice: Any, clock: Any) -> Checkpoint:
    return Checkpoint.objects.create(
        project=alice.project, run_id="run_x", run_name="letters", attempt_id="att_x", attempt_number=1,
        node_id="node_1", step=20, manifest_sha256="0" * 64, tar_sha256="1" * 64, bytes=1,
        state=CheckpointState.STORED, created_at=clock.now, stored_at=clock.now, metrics={"reward_mean": 0.2},
    )  # fmt: skip


def jobs_of(run: Any) -> dict[str, str]:
    attempt = Attempt.objects.filter(run_id=run["id"]).latest("number")
    return {job.name: job.state for job in attempt.jobs.all()}


def test_it_takes_one_slot_and_succeeds_without_a_checkpoint(
    alice: Any, node: Any, start: Any, tick: Any, checkpoint: Checkpoint
) -> None:
    machine = node(slots=1)
    run = start(machine, **SPEC, model={"checkpoint": checkpoint.pk})
    assert (run["slots_needed"], run["total_train_steps"]) == (1, 0)
    assert set(jobs_of(run)) == {"controller", "reward", "rollout-0"}
    assert set(machine.reply.attempts[0].ports) == {"controller", "reward", "engine-0"}
    row = Run.objects.get(pk=run["id"])
    telemetry_hooks.record_summary(row, row.attempts.get(), "evaluation", {"end": SCORES})
    machine.exit(machine.job("controller"), EndReason.COMPLETED, shipped=10)
    machine.beat()
    tick()
    machine.beat()
    machine.beat()
    tick()
    run = alice.see(run["id"])
    assert (run["status"], run["reason"]) == ("SUCCEEDED", "completed")
    assert not Lease.objects.filter(released_at=None).exists()
    metrics = alice.get(f"/checkpoints/{checkpoint.pk}").json()["metrics"]
    assert (metrics["eval/accuracy"], metrics["eval/accuracy_low"], metrics["eval/pass_at_1"]) == (
        0.75,
        0.63,
        0.75,
    )
    assert metrics["reward_mean"] == 0.2, "what was known of it before stays"


def test_an_eval_of_a_base_model_changes_no_checkpoint(
    alice: Any, node: Any, start: Any, checkpoint: Checkpoint
) -> None:
    run = start(node(slots=1), **SPEC)
    row = Run.objects.get(pk=run["id"])
    telemetry_hooks.record_summary(row, row.attempts.get(), "evaluation", {"end": SCORES})
    checkpoint.refresh_from_db()
    assert "eval/accuracy" not in checkpoint.metrics
    assert alice.see(run["id"])["summary"]["evaluation"]["end"]["accuracy"] == 0.75


def test_a_stop_asks_every_job_at_once(alice: Any, node: Any, start: Any, tick: Any) -> None:
    machine = node(slots=1)
    run = start(machine, **SPEC)
    assert alice.post(f"/runs/{run['id']}/stop").status_code == 202
    machine.beat()
    machine.ship_all()
    machine.beat()
    tick()
    assert alice.see(run["id"])["status"] == "STOPPED"
    assert set(jobs_of(run).values()) == {JobState.EXITED}


def test_one_whose_node_is_lost_before_its_last_lines_came_is_tried_again(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node(slots=1)
    run = start(machine, **SPEC)
    machine.exit(machine.job("controller"), EndReason.COMPLETED, shipped=4)
    machine.beat()
    assert alice.see(run["id"])["status"] == "FINALIZING"
    Node.objects.update(liveness=Liveness.LOST)
    tick()
    assert alice.see(run["id"])["status"] in ("RECOVERING", "QUEUED")


def test_without_scores_it_has_not_succeeded(alice: Any, node: Any, start: Any, tick: Any) -> None:
    """The node answers, but what its controller wrote never comes: after ten minutes that is an end, not a success."""
    machine = node(slots=1)
    run = start(machine, **SPEC)
    for job_id in list(machine.jobs):
        machine.exit(job_id, EndReason.COMPLETED, shipped=4)
    machine.beat()
    tick(550)
    machine.beat()
    tick(100)
    run = alice.see(run["id"])
    assert (run["status"], run["fault"], run["conditions"]) == ("FAILED", "infra", ["GAP"])
    assert "did not ship the scores" in run["reason_message"]


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"evaluation": {"prompts": 65}}, "/dataset/split", "split_too_small"),
        ({"dataset": {"version": "sums@1", "split": "exam"}}, "/dataset/split", "unknown_split"),
        ({"evaluation": {"prompts": 8, "dataset": "sums@1"}}, "/evaluation/dataset", "option_of_training"),
    ],
)
def test_what_it_cannot_score_is_rejected_at_submission(
    alice: Any, change: dict[str, Any], pointer: str, code: str
) -> None:
    reply = alice.post("/runs", {"spec": alice.spec(**{**SPEC, **change})})
    assert reply.status_code == 422
    [fault] = reply.json()["errors"]
    assert (fault["pointer"], fault["code"]) == (pointer, code)


def test_a_gate_reads_the_accuracy_of_each_source() -> None:
    estimate = {"value": 0.75, "low": 0.5, "high": 0.9}
    metrics = evaluation_metrics({"end": {"accuracy": 0.5, "by_source": {"openai/gsm8k": estimate}}})
    assert metrics == {"eval/accuracy": 0.5, "eval/by_source/openai/gsm8k": 0.75}
    assert all(unknown_metric_message(name) == "" for name in metrics)
    assert "did you mean" in unknown_metric_message("eval/acuracy")
