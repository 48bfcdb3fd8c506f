"""Sharding options and gathering of full weights."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from oolong.contracts.run_spec import TrainerSection
from tests.unit.trainers.operation_counter import OperationCounter
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import apply_fsdp, gather_full_tensors, set_gradient_sync
from trainers.models.packed_row import pack_row
from trainers.models.policy import DTYPES, load_policy


def test_gather_without_keep_returns_nothing(tiny_model: Path) -> None:
    assert gather_full_tensors(load_policy(tiny_model), dtype=torch.float32, keep=False) == {}


def test_gather_overwrites_the_tensors_that_it_is_given(
    tiny_model: Path, context: DistributedContext
) -> None:
    policy = apply_fsdp(load_policy(tiny_model), context.mesh, TrainerSection())
    first = gather_full_tensors(policy, dtype=torch.bfloat16, keep=True)
    memory = {name: tensor.data_ptr() for name, tensor in first.items()}
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(2)
    second = gather_full_tensors(policy, dtype=torch.bfloat16, keep=True, into=first)
    assert {name: tensor.data_ptr() for name, tensor in second.items()} == memory
    expected = gather_full_tensors(policy, dtype=torch.float32, keep=True)
    assert all(torch.equal(tensor, expected[name].bfloat16()) for name, tensor in second.items())


def test_untied_head_is_gathered(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
        intermediate_size=16, tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    assert "lm_head.weight" in gather_full_tensors(load_policy(tmp_path), dtype=torch.float32, keep=True)


def _note_type(found: list[torch.dtype], _: Any, __: Any, result: torch.Tensor) -> None:
    found.append(result.dtype)


def test_trainer_section_options_apply_to_every_layer(tiny_model: Path, context: DistributedContext) -> None:
    row = pack_row([list(range(60)), list(range(100))], [[5, 9], [7]])
    asked: dict[str, Any] = {"activation_checkpointing": "full", "reshard_after_forward": False}
    for section in (TrainerSection(), TrainerSection(**asked), TrainerSection(dtype="bfloat16")):
        policy = apply_fsdp(load_policy(tiny_model), context.mesh, section)
        results: list[torch.dtype] = []
        policy.layers[0].self_attn.q_proj.register_forward_hook(partial(_note_type, results))
        with OperationCounter() as executed:
            policy(row)[0].sum().backward()
        attended = executed.calls["_scaled_dot_product_flash_attention_for_cpu"] / len(row.seqlens)
        assert attended == len(policy.layers) * (1 if section.activation_checkpointing == "none" else 2)
        assert set(results) == {DTYPES[section.compute_type]}
        with torch.no_grad():
            policy(row)
        held = [isinstance(next(layer.parameters()), DTensor) for layer in policy.layers]
        assert held == [section.reshard_after_forward] * len(policy.layers)


def test_gradients_are_reduced_before_the_last_microbatch_only_where_memory_is_short(
    tiny_model: Path, context: DistributedContext
) -> None:
    row = pack_row([list(range(60))], [[5, 9]])
    for every in (False, True):
        policy = apply_fsdp(load_policy(tiny_model), context.mesh, TrainerSection())
        assert not policy.reduces_every_microbatch  # on a CPU
        policy.reduces_every_microbatch = every
        set_gradient_sync(policy, is_last=False)
        policy(row)[0].sum().backward()
        assert [one.grad is not None for one in policy.parameters()] == [every] * 24
        first = [None if one.grad is None else one.grad.full_tensor().clone() for one in policy.parameters()]
        set_gradient_sync(policy, is_last=True)
        policy(row)[0].sum().backward()
        for one, half in zip(policy.parameters(), first, strict=True):
            assert isinstance(one.grad, DTensor)
            assert half is None or torch.allclose(one.grad.full_tensor(), 2 * half, rtol=1e-5, atol=1e-6)
