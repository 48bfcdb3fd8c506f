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
from tests.integration.trainers.fake_controller import FakeController, recorded_batches, sampled
from tests.integration.trainers.rank_program import OPTIONS
from tests.support.ports import reserve_port
from trainers import checkpoint
from trainers.models.flops import load_forward_flops
from trainers.rl.batch_plan import flops_imbalance, plan_batch

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("rank_program.py")
PROGRAM_MODULE = "tests.integration.trainers.rank_program"


@pytest.fixture(scope="module")
def told(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What train steps came to: on one rank, on two of one node (with each option too), and on four of two nodes."""
    directory = tmp_path_factory.mktemp("ranks")
    rendezvous = ["--nodes", "2", "--address", "127.0.0.2", "--port", str(reserve_port())]
    alone = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    running = [
        start([*alone, "--nproc-per-node", "1"], tiny_model, directory / "one rank.json", "plain", directory),
        start(
            [*alone, "--nproc-per-node", "2"], tiny_model, directory / "two ranks.json", "options", directory
        ),
    ]
    for process in running:
        finish(process)
    nodes = [
        start_node(
            [*rendezvous, "--node-rank", str(number), "2"], tiny_model, directory / "two nodes.json", "resume",
            directory / "1", directory / f"node {number}",
        )
        for number in (1, 0)  # the second one waits for the first
    ]  # fmt: skip
    for process in nodes:
        finish(process)
    return {file.stem: json.loads(file.read_text()) for file in directory.glob("*.json")}


def start(torchrun: list[str], *arguments: object) -> subprocess.Popen[bytes]:
    return _start("torch.distributed.run", *torchrun, PROGRAM, *arguments)


def start_node(launch: list[str], *arguments: object) -> subprocess.Popen[bytes]:
    """As the agent of one of several nodes does. The nodes have no directory in common that they write to."""
    return _start("trainers.distributed.launch", *launch, PROGRAM_MODULE, *arguments)


def _start(module: str, *words: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, words)],
        env={
            **os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        },
    )  # fmt: skip


def finish(process: subprocess.Popen[bytes]) -> None:
    try:
        assert process.wait() == 0
    finally:
        process.kill()


@pytest.fixture(scope="module")
def by_ranks(told: dict[str, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {1: told["one rank"]["plain"], 2: told["two ranks"]["plain"]}


def test_each_rank_holds_half_of_each_parameter(by_ranks: dict[int, dict[str, Any]]) -> None:
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
        {**one["metrics"], "packing/microbatches": two["metrics"]["packing/microbatches"],
         "packing/tokens": two["metrics"]["packing/tokens"]}, rel=1e-3, abs=1e-5,
    )  # fmt: skip


@pytest.mark.parametrize("algorithm", ["critic and KL", "sequences"])
def test_two_ranks_equal_one_rank_with_every_loss_term(
    told: dict[str, dict[str, Any]], algorithm: str
) -> None:
    one, two = told["one rank"][algorithm], told["two ranks"][algorithm]
    assert two["losses"] == pytest.approx(one["losses"], abs=1e-5)
    assert two["norms"] == pytest.approx(one["norms"], rel=2e-4)
    assert two["critic_losses"] == pytest.approx(one["critic_losses"], rel=1e-4)
    assert two["critic_norms"] == pytest.approx(one["critic_norms"], rel=1e-3)
    assert len(one["critic_losses"]) == (8 if algorithm == "critic and KL" else 0)
    for name in ("advantage/std", "policy/reference_kl", "importance_ratio/masked_frac"):
        assert two["metrics"][name] == pytest.approx(one["metrics"][name], rel=1e-3, abs=1e-5), name


def test_adapters_of_two_ranks_equal_those_of_one(told: dict[str, dict[str, Any]]) -> None:
    one, two = told["one rank"]["LoRA"], told["two ranks"]["LoRA"]
    assert two["losses"] == pytest.approx(one["losses"], abs=1e-5)
    assert two["norms"] == pytest.approx(one["norms"], rel=2e-4)
    assert one["metrics"]["policy/reference_kl"] > 0
    for name, values in one["weights"].items():
        assert two["weights"][name] == pytest.approx(values, abs=1e-5), name


def test_dpo_on_two_ranks_equals_one_rank(told: dict[str, dict[str, Any]]) -> None:
    one, two = told["one rank"]["DPO"], told["two ranks"]["DPO"]
    assert len(one["steps"]) == 3 and one["steps"][2]["dpo/margin"] > 0.01
    for alone, shared in zip(one["steps"], two["steps"], strict=True):
        accuracy = shared.pop("dpo/accuracy")  # of the first step it compares rounding errors
        assert shared == pytest.approx({name: alone[name] for name in shared}, rel=1e-5, abs=1e-5)
    assert accuracy == one["steps"][2]["dpo/accuracy"]
    assert two["validation"] == pytest.approx(one["validation"], rel=1e-5, abs=1e-5)


def test_reducing_gradients_in_every_microbatch_changes_nothing(told: dict[str, dict[str, Any]]) -> None:
    for ranks in ("one rank", "two ranks"):
        every, once = told[ranks]["every microbatch"], told[ranks]["plain"]
        assert max(map(max, every["counts"][0])) > 1
        assert every["losses"] == pytest.approx(once["losses"][:8], abs=2e-6)
        assert every["norms"] == pytest.approx(once["norms"][:8], rel=2e-5)


def test_two_ranks_equal_one_rank_where_the_training_pass_gives_the_proximal_logprobs(
    told: dict[str, dict[str, Any]],
) -> None:
    """The batches have groups without an advantage, which one rank may have in a microbatch and the other not."""
    one, two = told["one rank"]["one minibatch"], told["two ranks"]["one minibatch"]
    assert len(one["losses"]) == 4
    assert two["losses"] == pytest.approx(one["losses"], abs=2e-6)
    assert two["norms"] == pytest.approx(one["norms"], rel=2e-5)
    for name in ("importance_ratio/mean", "importance_ratio/max", "policy/entropy"):
        assert two["metrics"][name] == pytest.approx(one["metrics"][name], rel=1e-4), name
    batches = recorded_batches(groups=4, members=4, seed=9, longest=90)
    rewards = [[one.reward for one in group.trajectories] for step in range(4) for group in batches(step)]
    assert 0 < sum(len(set(group)) == 1 for group in rewards) < len(rewards)


def test_weights_after_ten_steps_are_equal_on_one_and_two_ranks(by_ranks: dict[int, dict[str, Any]]) -> None:
    for name, values in by_ranks[1]["weights"].items():
        assert by_ranks[2]["weights"][name] == pytest.approx(values, abs=2e-3), name


def test_bfloat16_weights_cast_before_the_gather_equal_those_cast_after_it(
    by_ranks: dict[int, dict[str, Any]],
) -> None:
    assert all(one["weights"] and one["cast_before_gather_differs"] == [] for one in by_ranks.values())


def test_ranks_run_equally_many_forward_passes_over_unequal_lengths(
    by_ranks: dict[int, dict[str, Any]],
) -> None:
    for first, second in by_ranks[2]["counts"]:
        assert first == second
    assert max(max(count) for [count] in by_ranks[1]["counts"]) > 1


def test_two_nodes_with_two_ranks_each_equal_one_rank(told: dict[str, dict[str, Any]]) -> None:
    one, four = told["one rank"]["plain"], told["two nodes"]["plain"]
    assert len(four["losses"]) == 20
    assert four["losses"] == pytest.approx(one["losses"], abs=1e-6)
    assert four["norms"] == pytest.approx(one["norms"], rel=2e-5)
    assert len(four["counts"][0]) == 4, "ranks"
    assert all(is_dtensor and local * 4 == whole for is_dtensor, local, whole in four["shards"].values())


@pytest.mark.parametrize("written_by", ["one rank", "two nodes"])
def test_a_checkpoint_resumes_on_two_nodes(told: dict[str, dict[str, Any]], written_by: str) -> None:
    uninterrupted, resumed = told["one rank"]["plain"], told["two nodes"][f"resumed from {written_by}"]
    assert len(resumed["losses"]) == 10
    assert resumed["losses"] == pytest.approx(uninterrupted["losses"][10:], abs=2e-6)
    assert resumed["norms"] == pytest.approx(uninterrupted["norms"][10:], rel=2e-5)


def test_only_the_first_of_two_nodes_writes_a_checkpoint(
    told: dict[str, dict[str, Any]],
) -> None:
    assert told["two nodes"]["directories"] == [True, False]


@pytest.mark.parametrize("option", [name for name in OPTIONS if name != "bfloat16"])
def test_trainer_options_do_not_change_losses(told: dict[str, dict[str, Any]], option: str) -> None:
    plain, other = told["two ranks"]["plain"], told["two ranks"][option]
    assert other["losses"] == pytest.approx(plain["losses"][:8], abs=2e-6)
    assert other["norms"] == pytest.approx(plain["norms"][:8], rel=2e-5)


def test_bfloat16_losses_are_close_and_master_weights_stay_float32(
    told: dict[str, dict[str, Any]],
) -> None:
    plain, rough = told["two ranks"]["plain"], told["two ranks"]["bfloat16"]
    assert (
        rough["losses"] == pytest.approx(plain["losses"][:8], abs=0.02)
        and rough["losses"] != plain["losses"][:8]
    )
    assert rough["masters"] == ["torch.float32"]


def test_checkpoint_of_two_ranks_resumes_on_one(start_trainer: Callable[..., Any], tiny_model: Path) -> None:
    spec = {
        "rollout": {"group_size": 4},
        "trainer": {"total_train_steps": 2, "groups_per_step": 4, "minibatches": 2},
        "checkpoint": {"every_steps": 1, "keep_last": 5},
    }
    batches = recorded_batches(groups=4, members=4)
    with FakeController(batches) as controller:
        two = start_trainer(spec, num_ranks=2, controller_url=controller.url)
        assert two.finish() == 0, two.log
    for announced in controller.announced[1:]:  # the two trajectories are on different ranks, or on the same
        names = sorted((tokens.group_id, tokens.member) for tokens in announced.tokens)
        assert names == sorted(sampled(batches(announced.version - 1)))
    first = two.directory / "checkpoints" / "step-00000001"
    assert len(list((first / "state").glob("*.distcp"))) == 2
    flops = load_forward_flops(tiny_model)
    for version in range(2):
        plans = plan_batch(
            batches(version), version=version, num_ranks=2, minibatches=2, token_budget=4096, flops=flops
        )
        told = two.points()[version + 1]["packing/flops_imbalance"]
        assert told == pytest.approx(flops_imbalance(plans, flops)) and told > 1.0
    with FakeController(batches, trained=4) as controller:
        one = start_trainer(spec, controller_url=controller.url, resume_directory=str(first))
        assert one.finish() == 0, one.log
    assert two.result.reason is one.result.reason is EndReason.COMPLETED
    assert one.points()[2]["loss/policy"] == pytest.approx(two.points()[2]["loss/policy"], abs=2e-6)
    assert one.points()[2]["optim/grad_norm"] == pytest.approx(two.points()[2]["optim/grad_norm"], rel=2e-5)
    assert (
        checkpoint.verify(one.directory / "checkpoints" / "step-00000002")[0].parent
        == checkpoint.verify(first)[1]
    )
