"""Simulations through the API: service times from a data sheet or from runs, and plain refusals."""

from __future__ import annotations

from typing import Any

import pytest

from control_plane.assets.models import BaseModel
from control_plane.checkpoints.models import Checkpoint, CheckpointState
from control_plane.fleet.models import Slot
from control_plane.runs.models import Attempt, Job, Run
from control_plane.telemetry.ingest import outbox
from oolong.contracts.lifecycle import RunStatus
from oolong.contracts.telemetry import Points
from tests.unit.control_plane.telemetry.world import encode

QWEN_1_5B = {
    "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "hidden_size": 1536,
    "intermediate_size": 8960, "vocab_size": 151_936,
}  # fmt: skip


@pytest.fixture
def sized(alice: Any) -> Any:
    BaseModel.objects.update(parameters=1_540_000_000, config=QWEN_1_5B)
    return alice


def simulate(person: Any, spec: dict[str, Any] | None = None, **options: Any) -> Any:
    return person.post("/runs/simulate", {"spec": person.spec(**(spec or {})), **options})


def refusal(reply: Any) -> tuple[str, str, str]:
    assert reply.status_code == 422, reply.content
    (error,) = reply.json()["errors"]
    return error["pointer"], error["code"], error["message"]


def test_a_named_gpu_gives_the_times_of_its_data_sheet(sized: Any) -> None:
    found = simulate(sized, devices=4, gpu="h100", mean_tokens=64).json()
    assert found["source"] == {"kind": "data_sheet", "gpu": "H100", "from_runs": 0, "lengths": "given"}
    assert (found["devices"], found["lengths"]["mean"]) == (4, 64)
    best = found["best"]
    assert best["engines"] + best["trainer_ranks"] == 4 and best["trained_tokens_per_second"] > 0
    assert [row["max_staleness"] for row in found["staleness"]] == [0, 1, 2, 4, 8]
    assert found["sufficient_staleness"] in (0, 1, 2, 4, 8)
    assert {row["change"] for row in found["sensitivity"]} >= {
        "decoding twice as long",
        "training half as long",
    }
    assert found["given"]["engines"] + found["given"]["trainer_ranks"] == 2
    steps = sized.spec()["trainer"].get("total_train_steps", 0) or 60
    assert found["run_seconds"] == pytest.approx(steps * best["step_seconds"], rel=1)
    assert found["gpu_hours"] == pytest.approx(4 * found["run_seconds"] / 3600)


def test_the_gpu_of_the_pool_is_taken_where_nothing_was_measured(sized: Any, node: Any) -> None:
    node(slots=2)
    Slot.objects.update(device="cuda", model="NVIDIA A100-SXM4-80GB", memory_bytes=80 * 2**30)
    found = simulate(sized).json()
    assert (found["source"]["gpu"], found["source"]["lengths"]) == ("A100", "assumed")
    assert found["lengths"]["mean"] == 0.5 * found["lengths"]["limit"]


def test_runs_of_the_model_are_measured(sized: Any, node: Any) -> None:
    measured_run(sized, node(), tokens=2_000, running=(4, 8, 16))
    found = simulate(sized, devices=3).json()
    assert found["source"] == {"kind": "measured", "gpu": None, "from_runs": 1, "lengths": "measured"}
    assert found["lengths"]["mean"] == 50 and found["lengths"]["spread"] == pytest.approx(0.4724, abs=1e-3)
    times = found["times"]
    assert (times["decode_step"], times["decode_sequence"]) == pytest.approx((0.02, 0.001))
    assert times["train_token"] == pytest.approx((0.5 + 1.5) / 2_000)
    assert (times["train_step"], times["publish"], times["load"]) == pytest.approx((0.25, 0.125, 0.0625))


def test_runs_that_began_with_a_checkpoint_of_the_model_are_measured(sized: Any, node: Any) -> None:
    warm_start = sized.run()
    run = measured_run(sized, node(), tokens=2_000, running=(4, 8, 16))
    checkpoint = Checkpoint.objects.create(
        project=sized.project, run_id=warm_start["id"], run_name="warm start", attempt_id="att_1",
        attempt_number=1, step=1, state=CheckpointState.STORED, bytes=1, node_id="node_1",
        created_at=run.created_at,
    )  # fmt: skip
    Run.objects.filter(pk=run.pk).update(base_model=None, initial_checkpoint=checkpoint)
    assert simulate(sized).json()["source"]["from_runs"] == 1


def test_a_named_gpu_goes_before_measurements(sized: Any, node: Any) -> None:
    measured_run(sized, node(), tokens=2_000, running=(4, 8, 16))
    assert simulate(sized, gpu="H200").json()["source"]["kind"] == "data_sheet"


def test_runs_of_another_project_are_not_measured(sized: Any, node: Any, person: Any) -> None:
    run = measured_run(sized, node(), tokens=2_000, running=(4, 8, 16))
    Run.objects.filter(pk=run.pk).update(project=person("charlie", team="blue").project)
    assert refusal(simulate(sized))[1] == "no_service_times"


def test_without_times_the_refusal_names_the_way_out(sized: Any) -> None:
    pointer, code, message = refusal(simulate(sized))
    assert (pointer, code) == ("/gpu", "no_service_times")
    assert "pool 'default'" in message and "Give gpu, one of B200, H200" in message


def test_wrong_input_is_refused_at_its_field(sized: Any) -> None:
    assert refusal(simulate(sized, gpu="Voodoo 2"))[:2] == ("/gpu", "unknown_gpu")
    assert refusal(simulate(sized, gpu="H100", devices=1))[0] == "/devices"
    assert refusal(simulate(sized, gpu="H100", mean_tokens=10**6))[:2] == ("/mean_tokens", "too_long")
    assert refusal(simulate(sized, gpu="H100", engines=3))[0] == "/engines"
    assert (
        refusal(simulate(sized, {"dataset": {"version": "none@1"}}, gpu="H100"))[0] == "/spec/dataset/version"
    )


def test_a_model_of_unknown_size_has_no_data_sheet_times(sized: Any) -> None:
    BaseModel.objects.update(parameters=None)
    assert refusal(simulate(sized, gpu="H100"))[:2] == ("/spec/model", "unknown_model_size")


def test_a_run_without_rollouts_has_no_simulation(sized: Any) -> None:
    spec = {
        "kind": "eval", "name": "x", "model": {"base_model": "tiny"},
        "dataset": {"version": "sums@1", "split": "eval"}, "evaluation": {"prompts": 8},
    }  # fmt: skip
    reply = sized.post("/runs/simulate", {"spec": spec, "gpu": "H100"})
    assert refusal(reply)[:2] == ("/spec/kind", "not_rl")


def measured_run(person: Any, node: Any, *, tokens: int, running: tuple[int, ...]) -> Run:
    """A finished run of one rank; a decode step of its engine took 20 ms and one more for each request."""
    run = Run.objects.get(pk=person.run()["id"])
    attempt = Attempt.objects.create(
        run=run, number=1, epoch=1, node_id=node.node_id, token="t", ports={}, created_at=run.created_at
    )
    trainer = Job.objects.create(attempt=attempt, name="trainer", kind="trainer")
    rollout = Job.objects.create(attempt=attempt, name="rollout-0", kind="rollout")
    step = {
        "packing/tokens": tokens, "time/proximal_seconds": 0.5, "time/train_seconds": 1.5,
        "time/prepare_seconds": 0.25, "time/publish_seconds": 0.125,
    }  # fmt: skip
    ship(trainer, *(Points(axis="step", x=x, values=step) for x in range(1, 7)))
    rates = [
        Points(
            axis="time", x=x,
            values={"engine/running_requests": n, "perf/generated_tokens_per_second": n / (0.02 + 0.001 * n)},
        )
        for x, n in enumerate(running)
    ]  # fmt: skip
    ship(rollout, *rates, Points(axis="step", x=1, values={"weight_sync/load_seconds": 0.0625}))
    lengths = {"response_length/mean": 50.0, "response_length/cv": 0.5}
    Run.objects.filter(pk=run.pk).update(status=RunStatus.SUCCEEDED, train_step=6, metrics=lengths)
    return run


def ship(job: Job, *lines: Points) -> None:
    outbox.ingest_outbox(job.pk, "main-0.jsonl", offset=0, body=encode(*lines))
