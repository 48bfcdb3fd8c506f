"""FSDP2 over gloo: two ranks share the weights and do together exactly what one does alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oolong.contracts.lifecycle import EndReason
from tests.integration.trainers.scripted_controller import ScriptedController, recorded_batches
from trainers import checkpoint

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("rank_program.py")


@pytest.fixture(scope="module")
def by_ranks(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """What ten steps of one rank and of two came to."""
    directory = tmp_path_factory.mktemp("ranks")
    running = {
        ranks: subprocess.Popen(
            [
                sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--rdzv-backend", "c10d",
                "--rdzv-endpoint", "127.0.0.1:0", str(PROGRAM), str(tiny_model), str(directory / f"{ranks}.json"),
            ],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "OMP_NUM_THREADS": "1"},
        )
        for ranks in (1, 2)
    }  # fmt: skip
    for process in running.values():
        try:
            assert process.wait(90) == 0
        finally:
            process.kill()
    return {ranks: json.loads((directory / f"{ranks}.json").read_text()) for ranks in running}


def test_each_parameter_is_a_dtensor_whose_local_shard_is_half(by_ranks: dict[int, dict[str, Any]]) -> None:
    shards = by_ranks[2]["shards"]
    assert len(shards) == 24
    for name, (is_dtensor, local, whole) in shards.items():
        assert is_dtensor and local * 2 == whole, name


def test_losses_and_gradient_norms_of_two_ranks_equal_those_of_one(
    by_ranks: dict[int, dict[str, Any]],
) -> None:
    one, two = by_ranks[1], by_ranks[2]
    assert len(one["losses"]) == 20
    assert two["losses"] == pytest.approx(one["losses"], abs=2e-6)
    assert two["norms"] == pytest.approx(one["norms"], rel=2e-5)
    assert two["metrics"] == pytest.approx(
        {**one["metrics"], "pack/microbatches": two["metrics"]["pack/microbatches"],
         "pack/tokens": two["metrics"]["pack/tokens"]}, rel=1e-3, abs=1e-5,
    )  # fmt: skip


def test_weights_after_ten_steps_agree(by_ranks: dict[int, dict[str, Any]]) -> None:
    for name, values in by_ranks[1]["weights"].items():
        assert by_ranks[2]["weights"][name] == pytest.approx(values, abs=2e-3), name


def test_ranks_run_equally_many_passes_over_unequal_lengths(by_ranks: dict[int, dict[str, Any]]) -> None:
    for first, second in by_ranks[2]["counts"]:
        assert first == second
    assert max(max(count) for [count] in by_ranks[1]["counts"]) > 1


def test_a_checkpoint_of_two_ranks_resumes_on_one(start_trainer: Callable[..., Any]) -> None:
    spec = {
        "rollout": {"group_size": 4},
        "trainer": {"total_train_steps": 2, "groups_per_step": 4, "minibatches": 2},
        "checkpoint": {"every_steps": 1, "keep_last": 5},
    }
    batches = recorded_batches(groups=4, members=4)
    with ScriptedController(batches) as controller:
        two = start_trainer(spec, ranks=2, controller_url=controller.url)
        assert two.finish() == 0, two.log
    first = two.directory / "checkpoints" / "step-00000001"
    assert len(list((first / "state").glob("*.distcp"))) == 2
    with ScriptedController(batches, trained=4) as controller:
        one = start_trainer(spec, controller_url=controller.url, resume_directory=str(first))
        assert one.finish() == 0, one.log
    assert two.result.reason is one.result.reason is EndReason.COMPLETED
    assert one.points()[2]["loss/policy"] == pytest.approx(two.points()[2]["loss/policy"], abs=2e-6)
    assert one.points()[2]["optim/grad_norm"] == pytest.approx(two.points()[2]["optim/grad_norm"], rel=2e-5)
    assert (
        checkpoint.verify(one.directory / "checkpoints" / "step-00000002")[0].parent
        == checkpoint.verify(first)[1]
    )
