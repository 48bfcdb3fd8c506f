"""The whole loop on one GPU: controller, reward service, worker with SGLang, trainer; asynchronous and synchronous."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oolong.contracts.telemetry import Points
from tests.gpu.conftest import ENGINE_SHARE, OF_THE_MACHINE, REHEARSAL, Machine, first_gpu
from tests.support.tiny_specs import tiny_run_spec
from tests.tools.local_attempt import LocalAttempt, letter_sum_file

STEPS = 3 if REHEARSAL else 12
FIRST_COUNTED = 2 if REHEARSAL else 4  # the steps before it warm up


def test_the_loop_runs_on_one_gpu_and_asynchrony_is_measured(
    machine: Machine, engine_python: str, tmp_path: Path, report: Callable[..., None]
) -> None:
    """Both share the device, so how much is gained is for this figure to say; it has no goal here."""
    seconds = {eta: step_seconds(machine, engine_python, tmp_path, eta=eta) for eta in (0, 4)}
    report(async_over_sync=seconds[0] / seconds[4], step_seconds_by_eta=seconds)


def step_seconds(machine: Machine, engine_python: str, directory: Path, *, eta: int) -> float:
    spec: dict[str, Any] = {
        "name": "gpu", "model": {"base_model": "m"}, "dataset": {"version": "d@1"},
        "reward": {"name": "length", "options": {"full_until": 0, "zero_from": 4000}},
        "rollout": {
            "group_size": 4, "max_new_tokens": 64 if REHEARSAL else 512, "engine_memory_fraction": ENGINE_SHARE,
            # Without version spans (SGLang before 0.5.19) tokens are labelled by whoever takes them back.
            "interruption": "abort", "max_concurrent_groups": 16,
        },
        "staleness": {"max": eta},
        # Random weights write next to no text, so most rewards of a group are equal: with this term every token is
        # trained on nevertheless, and a step's time is that of its batch.
        "algorithm": {"entropy_bonus": 1e-6},
        "trainer": {
            "total_train_steps": STEPS, "groups_per_step": 4, "minibatches": 2, "learning_rate": 1e-6,
            "microbatch_tokens": 4096, "dtype": machine.dtype, "activation_checkpointing": "selective",
        },
        "weight_sync": {"probe_tolerance": 1.0 if machine.dtype == "bfloat16" else 1e-3},
        "checkpoint": {"every_steps": 100},
    }  # fmt: skip
    attempt = LocalAttempt(
        directory=directory / f"eta-{eta}", spec=tiny_run_spec(spec), model_directory=machine.model,
        dataset_file=letter_sum_file(directory), node_python=sys.executable, engine_launcher=engine_python,
        device=machine.device, slots=[first_gpu()] if machine.device == "cuda" else [],
        environment=of_the_gpu() if machine.device == "cuda" else {},
    )  # fmt: skip
    try:
        attempt.start_all()
        results = attempt.wait(timeout=250 if REHEARSAL else 900)
    finally:
        attempt.stop()
    for name in ("trainer", "controller"):
        result = results[name]
        assert result is not None and result["reason"] == "completed", (name, result, log_of(attempt, name))
    summaries = attempt.summaries()
    assert summaries["trainer"]["policy_version"] == STEPS
    assert summaries["trainer"]["engine_mismatch"]["tokens_compared"] > 0
    steps = {
        line.x: line.values["time/step_seconds"]
        for line in attempt.jobs["trainer"].lines()
        if isinstance(line, Points) and "time/step_seconds" in line.values
    }
    counted = [value for step, value in steps.items() if step >= FIRST_COUNTED]
    return sum(counted) / len(counted)


def of_the_gpu() -> dict[str, str]:
    """As the agent gives it to jobs. HOME is this user's: what was compiled for one run is there for the next."""
    kept = {name: os.environ[name] for name in OF_THE_MACHINE if name in os.environ}
    return kept | {"CUDA_VISIBLE_DEVICES": first_gpu()}


def log_of(attempt: LocalAttempt, name: str) -> str:
    return (attempt.jobs[name].directory / "output.log").read_text()[-3000:]
