"""LoRA: which weights are trained, what the base computes, and what is published and saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from oolong.contracts.lora_adapter import AdapterBase
from oolong.contracts.run_spec import LoraSection, RunSpec
from oolong.merging.directories import merge_directories
from oolong.merging.tensors import MergeError
from tests.support.tiny_specs import tiny_run_spec
from tests.unit.trainers.rl.test_learner import batch
from tests.unit.trainers.test_checkpoint import record
from trainers import checkpoint
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import gather_full_tensors, load_sharded_policy
from trainers.models.lora import BasePolicy, adapted_layers, add_adapters
from trainers.models.packed_row import pack_row
from trainers.models.policy import DTYPES, InvalidModel, Policy, load_policy, uninitialized_policy
from trainers.phase_timer import PhaseTimer
from trainers.rl.batch_plan import plan_batch
from trainers.rl.learner import Learner, StepOutcome
from trainers.rl.train_loop import make_learner

ROW = pack_row([list(range(1, 60)), list(range(100, 140))], [[5, 9, 30], [7, 20]])


def lora_spec(*, minibatches: int = 2, **trainer: Any) -> RunSpec:
    return tiny_run_spec(
        {
            "name": "test", "model": {"base_model": "tiny", "lora": {"rank": 4}}, "dataset": {"version": "d@1"},
            "rollout": {"group_size": 3, "temperature": 0.7, "max_new_tokens": 50},
            "trainer": {"groups_per_step": 4, "minibatches": minibatches, "learning_rate": 1e-2, **trainer},
            "algorithm": {"kl": {"coefficient": 0.1}},
        }
    )  # fmt: skip


def step(learner: Learner, model: Path, version: int) -> StepOutcome:
    [plan] = plan_batch(batch(model), version=version, num_ranks=1, minibatches=2, token_budget=64)
    return learner.train(plan, PhaseTimer())


def logprobs(policy: Policy | BasePolicy) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = policy(ROW)[0]
    return result


@pytest.fixture
def trained(tiny_model: Path, context: DistributedContext) -> Learner:
    """Two train steps with KL to the base."""
    learner = make_learner(tiny_model, lora_spec(), context)
    first, second = step(learner, tiny_model, 0), step(learner, tiny_model, 1)
    assert first.finite and second.finite
    assert second.metrics["policy/reference_kl"] > 1e-6
    return learner


def test_only_adapters_are_trained_and_the_base_without_them_is_unchanged(
    trained: Learner, tiny_model: Path
) -> None:
    base = load_policy(tiny_model)
    parameters = dict(trained.policy.named_parameters())
    assert len(trained.optimizer.state) == len(trained.parameters) == 2 * 2 * 7
    for name, parameter in base.named_parameters():
        assert torch.equal(parameters[name].full_tensor(), parameter), name
    assert torch.equal(logprobs(BasePolicy(trained.policy)), logprobs(base))
    assert (logprobs(trained.policy) - logprobs(base)).abs().max() > 1e-3


def test_backward_pass_gives_gradients_to_adapters_only(
    tiny_model: Path, context: DistributedContext
) -> None:
    policy = load_sharded_policy(tiny_model, lora_spec(activation_checkpointing="full"), context, seed=1)
    assert torch.equal(logprobs(policy), logprobs(load_policy(tiny_model)))  # B starts at 0
    policy(ROW)[0].sum().backward()
    with_gradients = {name for name, parameter in policy.named_parameters() if parameter.grad is not None}
    assert with_gradients == {
        f"{layer.removesuffix('weight')}{part}"
        for layer in adapted_layers(policy)
        for part in ("lora_a", "lora_b")
    }


def test_merged_weights_compute_what_the_adapters_compute(trained: Learner, tiny_model: Path) -> None:
    tensors = gather_full_tensors(trained.policy, dtype=torch.float32, keep=True)
    base = gather_full_tensors(load_policy(tiny_model), dtype=torch.float32, keep=True)
    assert {name: one.shape for name, one in tensors.items()} == {
        name: one.shape for name, one in base.items()
    }
    merged = uninitialized_policy(tiny_model)
    merged.causal_lm.load_state_dict(tensors, strict=False)
    assert logprobs(merged) == pytest.approx(logprobs(trained.policy), abs=1e-5)


def test_base_is_held_in_the_compute_dtype_and_adapters_in_float32(
    tiny_model: Path, context: DistributedContext
) -> None:
    learner = make_learner(tiny_model, lora_spec(dtype="bfloat16"), context)
    dtypes = {name.rpartition(".")[2]: one.dtype for name, one in learner.policy.named_parameters()}
    assert dtypes == {"weight": torch.bfloat16, "lora_a": torch.float32, "lora_b": torch.float32}
    assert step(learner, tiny_model, 0).finite
    tensors = gather_full_tensors(learner.policy, dtype=torch.bfloat16, keep=True)
    assert {one.dtype for one in tensors.values()} == {torch.bfloat16}


@pytest.mark.parametrize("offload", [False, True])
def test_checkpoint_holds_adapters_only_and_resumes_bit_equal(
    offload: bool, tiny_model: Path, context: DistributedContext, tmp_path: Path
) -> None:
    spec = lora_spec(offload_optimizer=offload)
    learner = make_learner(tiny_model, spec, context)
    step(learner, tiny_model, 0)
    committed = write_checkpoint(learner, 1, spec, context, tmp_path)
    resumed = make_learner(tiny_model, spec, context)
    checkpoint.load_state(
        committed.directory, policy=resumed.policy, optimizer=resumed.optimizer, context=context
    )
    outcomes = [step(one, tiny_model, 1) for one in (learner, resumed)]
    assert outcomes[0].minibatch_losses == outcomes[1].minibatch_losses
    for one, other in zip(learner.parameters, resumed.parameters, strict=True):
        assert torch.equal(one.full_tensor(), other.full_tensor())
    saved = checkpoint.training_state(learner.policy, learner.optimizer)["parameters"]
    assert all(name.endswith(("lora_a", "lora_b")) for name in saved)

    whole = make_learner(
        tiny_model, tiny_run_spec({**spec.model_dump(), "model": {"base_model": "tiny"}}), context
    )
    with pytest.raises(checkpoint.InvalidCheckpoint, match=r"model\.lora"):
        checkpoint.load_state(
            committed.directory, policy=whole.policy, optimizer=whole.optimizer, context=context
        )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_merging_a_checkpoint_gives_the_weights_of_the_trainer(
    dtype: str, tiny_model: Path, context: DistributedContext, tmp_path: Path
) -> None:
    """Twice: the second run starts from what the first one's adapter makes."""
    model, adapters = tiny_model, []
    for number in (1, 2):
        spec = lora_spec(dtype=dtype)
        learner = make_learner(model, spec, context)
        step(learner, tiny_model, 0)
        expected = gather_full_tensors(learner.policy, dtype=DTYPES[dtype], keep=True)
        committed = write_checkpoint(learner, number, spec, context, tmp_path / f"run-{number}")
        checkpoint.verify(committed.directory)
        assert not (committed.directory / "hf").exists()
        adapters.append(committed.directory / "adapter")
        model = tmp_path / f"merged-{number}"
        model.mkdir()
        merge_directories(tiny_model, adapters, model)
        merged = load_file(model / "model.safetensors")
        assert merged.keys() == expected.keys()
        for name, tensor in expected.items():
            assert merged[name].dtype == tensor.dtype
            assert torch.allclose(merged[name].float(), tensor.float(), rtol=2**-7, atol=1e-6), name
            assert (merged[name] == tensor).float().mean() > (0.2 if dtype == "float32" else 0.99), name
    assert {path.name for path in tiny_model.iterdir()} - {"manifest.json"} <= {
        path.name for path in model.iterdir()
    }
    assert load_policy(model).causal_lm.config.model_type == "qwen3"


def test_adapter_of_another_model_is_refused_by_its_tensor(
    trained: Learner, tiny_model: Path, context: DistributedContext, tmp_path: Path
) -> None:
    adapter = write_checkpoint(trained, 2, lora_spec(), context, tmp_path / "run").directory / "adapter"
    other, target = tmp_path / "other", tmp_path / "merged"
    other.mkdir(), target.mkdir()
    tensors = load_file(tiny_model / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    save_file({**tensors, name: tensors[name][:-1].contiguous()}, other / "model.safetensors")
    with pytest.raises(MergeError, match=rf"for another model: {name} is \[\d+, \d+\] in the base model"):
        merge_directories(other, [adapter], target)
    del tensors[name]
    save_file(tensors, other / "model.safetensors")
    with pytest.raises(MergeError, match=f"the base model has no tensor {name}"):
        merge_directories(other, [adapter], target)


def test_checkpoint_has_a_peft_adapter_that_computes_what_the_policy_computes(
    trained: Learner, tiny_model: Path, context: DistributedContext, tmp_path: Path
) -> None:
    expected = logprobs(trained.policy)
    committed = write_checkpoint(trained, 2, lora_spec(), context, tmp_path)
    config = json.loads((committed.directory / "adapter/adapter_config.json").read_text())
    adapter = load_file(committed.directory / "adapter/adapter_model.safetensors")
    base_file = json.loads((committed.directory / "adapter/base.json").read_text())
    assert base_file == {"dtype": "float32", "kind": "base_model", "id": "mdl_1", "sha256": "5" * 64}
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 4, 32.0)
    assert sorted(config["target_modules"]) == sorted(LoraSection().targets)
    assert len(adapter) == 2 * 2 * 7

    base = load_policy(tiny_model)
    with torch.no_grad():
        for name, weight in base.causal_lm.named_parameters():
            prefix = f"base_model.model.{name.removesuffix('.weight')}"
            if f"{prefix}.lora_A.weight" in adapter:
                product = adapter.pop(f"{prefix}.lora_B.weight") @ adapter.pop(f"{prefix}.lora_A.weight")
                weight += product * (config["lora_alpha"] / config["r"])
    assert not adapter
    assert logprobs(base) == pytest.approx(expected, abs=1e-5)


def write_checkpoint(
    learner: Learner, number: int, spec: RunSpec, context: DistributedContext, folder: Path
) -> checkpoint.CommittedCheckpoint:
    base = AdapterBase(kind="base_model", id="mdl_1", sha256="5" * 64, dtype=spec.trainer.compute_type)
    writer = checkpoint.CheckpointWriter(
        folder, context=context, model_directory=folder, adapter_base=base, keep_last=1
    )
    writer.begin(
        record(number), policy=learner.policy, optimizer=learner.optimizer, snapshot=None, weights=None
    )
    committed = writer.close()
    assert committed is not None
    return committed


def test_target_that_the_model_lacks_is_named(tiny_model: Path) -> None:
    policy = load_policy(tiny_model)
    for layer in policy.layers:
        layer.mlp.gate_up_proj = layer.mlp.gate_proj
        del layer.mlp.gate_proj
    with pytest.raises(InvalidModel, match=r"no layer gate_proj; it has down_proj, gate_up_proj"):
        add_adapters(policy, LoraSection(), seed=1)
