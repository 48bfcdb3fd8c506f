"""The trainer program with all it may have beside the policy: a critic, a reference, a loss of the user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from oolong.contracts.lifecycle import EndReason
from oolong.contracts.metrics import METRICS
from tests.integration.trainers.fake_controller import FakeController, recorded_batches
from trainers.algorithms.losses import decoupled_ppo

FULL: dict[str, Any] = {
    "rollout": {"group_size": 4},
    "trainer": {"total_train_steps": 4, "groups_per_step": 4, "minibatches": 2, "microbatch_tokens": 256},
    "checkpoint": {"every_steps": 2, "keep_last": 5},
    "algorithm": {
        "advantage": {"estimator": "gae", "mean": "batch", "std": "batch", "gae_lambda": 0.95},
        "critic": {"learning_rate": 1e-3}, "kl": {"coefficient": 0.1}, "loss_function": "mine@1",
        "overlong": {"margin_tokens": 100},
    },
}  # fmt: skip
BATCHES = recorded_batches(groups=4, members=4)


def source(directory: Path, text: str) -> dict[str, str]:
    file = directory / "loss.py"
    file.write_text(text)
    return {"loss": str(file)}


@pytest.fixture(scope="module")
def own_loss(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    built_in = Path(decoupled_ppo.__code__.co_filename).read_text()
    return source(tmp_path_factory.mktemp("source"), built_in.replace("def decoupled_ppo(", "def loss("))


@pytest.fixture(scope="module")
def whole(start_trainer: Callable[..., Any], own_loss: dict[str, str]) -> Any:
    with FakeController(BATCHES) as controller:
        run = start_trainer(FULL, controller_url=controller.url, source_files=own_loss)
        assert run.finish() == 0, run.log
    return run


def test_run_with_critic_reference_and_user_loss_reports_their_metrics(whole: Any) -> None:
    assert whole.result.reason is EndReason.COMPLETED
    for step, values in whole.points().items():
        assert set(values) <= set(METRICS)
        assert values["value/loss"] > 0 and values["time/values_seconds"] > 0
        assert values["time/reference_seconds"] > 0
        assert (values["policy/reference_kl"] > 0) == (step > 1)  # before the first step they are one
        assert 0 < values["response_length/overlong_frac"] <= 1 and values["reward/overlong_penalty_mean"] < 0
        phases = (
            "wait_batch", "prepare", "proximal", "reference", "values", "train", "publish", "checkpoint",
        )  # fmt: skip
        parts = sum(values[f"time/{phase}_seconds"] for phase in phases)
        assert parts == pytest.approx(values["time/step_seconds"], rel=0.02)
    [seconds] = [
        line.value["seconds"]
        for line in whole.lines()
        if type(line).__name__ == "Summary" and line.name == "trainer"
    ]
    parts = sum(spent for phase, spent in seconds.items() if phase not in ("step_total", "wait_first_batch"))
    assert parts == pytest.approx(seconds["step_total"], rel=0.02)


def test_critic_returns_include_the_overlong_penalty(whole: Any) -> None:
    """At first all values are 0: a token's return is the shaped reward, times 0.95 for each token after it."""
    total, tokens = 0.0, 0
    for group in BATCHES(0):
        for one in group.trajectories:
            length = len(one.token_ids)
            shaped = one.reward - min(1.0, max(0.0, (length - (112 - 100)) / 100))
            total += shaped * (1 - 0.95**length) / 0.05
            tokens += length
    first = whole.points()[1]
    assert first["value/return_mean"] == pytest.approx(total / tokens, rel=1e-5)
    assert first["optim/critic_learning_rate"] == 1e-3 != first["optim/learning_rate"]


def test_resume_with_critic_and_reference_is_bit_equal(
    start_trainer: Callable[..., Any], whole: Any, own_loss: dict[str, str]
) -> None:
    middle = whole.directory / "checkpoints" / "step-00000002"
    with FakeController(BATCHES, trained=8) as controller:
        resumed = start_trainer(
            FULL,
            controller_url=controller.url,
            resume_directory=str(middle),
            attempt_number=2,
            source_files=own_loss,
        )
        assert resumed.finish() == 0, resumed.log
    learned = [name for name in METRICS if not name.startswith(("time/", "perf/", "idle/", "memory/"))]
    for step in (3, 4):
        before, after = whole.points()[step], resumed.points()[step]
        assert {name: before.get(name) for name in learned} == {name: after.get(name) for name in learned}
    last = "checkpoints/step-00000004/hf/model.safetensors"
    weights = [load_file(one.directory / last) for one in (whole, resumed)]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
    assert not any(name.startswith("critic") or "value_head" in name for name in weights[0])


def test_raising_user_loss_ends_the_run_with_its_line(
    start_trainer: Callable[..., Any], tmp_path: Path
) -> None:
    small = {
        **FULL,
        "algorithm": {"loss_function": "mine@1", "options": {"mood": 3.0}},
        "trainer": {**FULL["trainer"], "total_train_steps": 1},
    }
    faulty = source(
        tmp_path, "def loss(inputs, settings, *, mood=0.0):\n    return mood and inputs.rewards\n"
    )
    with FakeController(BATCHES) as controller:
        run = start_trainer(small, controller_url=controller.url, source_files=faulty)
        assert run.finish() == 1
    assert run.result.reason is EndReason.CONFIG_REJECTED
    assert run.result.message == (
        "loss.py raised AttributeError: 'LossInputs' object has no attribute 'rewards', line 2"
    )
