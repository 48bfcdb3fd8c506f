"""Activation checkpointing saves memory without changing gradients; compilation is for CUDA only."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from oolong.contracts.run_spec import spec_errors
from tests.unit.trainers.operation_counter import OperationCounter
from trainers.models import attention
from trainers.models.decoder_layers import LayerOptions, UnsupportedOption, apply_layer_options
from trainers.models.packed_row import pack_row
from trainers.models.policy import Policy, load_policy


def kept_bytes(policy: Policy) -> tuple[int, torch.Tensor]:
    """Bytes that the layers' forward passes keep for backward, and the gradient of a weight."""
    storages: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    row = pack_row([list(range(60)), list(range(100))], [[5, 9], [7]])
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logprobs, _ = policy(row)
    logprobs.sum().backward()
    gradient = policy.layers[0].self_attn.q_proj.weight.grad
    assert gradient is not None
    return sum(storages.values()), gradient


def test_activation_checkpointing_saves_memory_and_keeps_gradients(tiny_model: Path) -> None:
    fresh = load_policy(tiny_model)
    kept, gradients = {}, {}
    for how in ("none", "selective", "full"):
        policy = copy.deepcopy(fresh)
        for layer in policy.layers:
            apply_layer_options(layer, LayerOptions(how), device_type="cpu")  # type: ignore[arg-type]
        names = [name for name, _ in policy.named_parameters()]
        assert names == [name for name, _ in fresh.named_parameters()]
        kept[how], gradients[how] = kept_bytes(policy)
    assert kept["full"] < kept["none"]
    torch.testing.assert_close(gradients["selective"], gradients["none"], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(gradients["full"], gradients["none"], atol=1e-6, rtol=1e-5)


def test_selective_checkpointing_does_not_recompute_matmuls_or_attention(tiny_model: Path) -> None:
    fresh = load_policy(tiny_model)
    counted = {}
    for how in ("none", "selective", "full"):
        policy = copy.deepcopy(fresh)
        for layer in policy.layers:
            apply_layer_options(layer, LayerOptions(how), device_type="cpu")  # type: ignore[arg-type]
        with OperationCounter() as executed:
            kept_bytes(policy)
        calls = executed.calls
        counted[how] = (calls["_scaled_dot_product_flash_attention_for_cpu"], calls["mm"], calls["silu"])
    assert counted["selective"][:2] == counted["none"][:2]
    assert counted["full"][0] == 2 * counted["none"][0] and counted["full"][1] > counted["none"][1]
    assert counted["selective"][2] == counted["full"][2] == 2 * counted["none"][2]


def test_compile_is_rejected_on_cpu_with_the_reason(tiny_model: Path) -> None:
    with pytest.raises(
        UnsupportedOption, match=r"trainer\.compile=true is supported on CUDA only, not on cpu"
    ):
        apply_layer_options(load_policy(tiny_model).layers[0], LayerOptions(compile=True), device_type="cpu")


def test_on_cuda_layers_are_compiled_with_dynamic_shapes(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, dict[str, Any]]] = []

    def compiled(function: Any, **options: Any) -> str:
        asked.append((function, options))
        return "compiled"

    monkeypatch.setattr(torch, "compile", compiled)
    layer = load_policy(tiny_model).layers[0]
    plain = layer.forward
    apply_layer_options(layer, LayerOptions(compile=True), device_type="cuda")
    assert asked == [(plain, {"dynamic": True})] and layer.forward == "compiled"


def test_spec_with_compile_and_float32_is_rejected() -> None:
    document = {"name": "n", "model": {"base_model": "m"}, "dataset": {"version": "d@1"}}
    [error] = spec_errors({**document, "trainer": {"compile": True, "dtype": "float32"}})
    assert (error.pointer, error.code) == ("/trainer/compile", "compile_needs_bfloat16")
    assert spec_errors({**document, "trainer": {"compile": True, "dtype": "bfloat16"}}) == []


def test_compiled_layer_is_not_recompiled_per_batch(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the kernel, whose place a stub takes here: other lengths and other numbers of sequences reuse the graph."""

    def stub(query: Any, key: Any, value: Any, scaling: Any, edges: Any, max_seqlen: int) -> Any:
        return (query * edges[-1] / max_seqlen).transpose(1, 2)

    monkeypatch.setattr(attention, "uses_varlen_kernel", lambda query: True)
    monkeypatch.setattr(attention, "_varlen_attention", stub)
    graphs = 0

    def count(graph: torch.fx.GraphModule, _: object) -> Any:
        nonlocal graphs
        graphs += 1
        return graph.forward

    torch._dynamo.reset()
    policy = load_policy(tiny_model)
    for layer in policy.layers[:1]:
        layer.forward = torch.compile(layer.forward, dynamic=True, backend=count)
    for lengths in ((5, 6), (9, 30), (3, 4, 5), (11, 2, 8, 9), (40, 41, 42, 43, 44)):
        policy(pack_row([list(range(length)) for length in lengths], [[2] for _ in lengths]))
    assert graphs <= 2
    torch._dynamo.reset()
