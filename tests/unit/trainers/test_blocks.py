"""CheckpointingMode keeps what it says and frees the rest; compilation is for CUDA."""

from __future__ import annotations

import copy
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from oolong.contracts.run_spec import TrainerSection, spec_errors
from trainers.distributed.context import DistributedContext
from trainers.distributed.fsdp import apply_fsdp
from trainers.models import attention
from trainers.models.decoder_layers import LayerOptions, UnsupportedOption, apply_layer_options
from trainers.models.optimizer import make_adamw
from trainers.models.packed_row import pack_row
from trainers.models.policy import DTYPES, Policy, load_policy


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


def test_the_more_is_computed_again_the_less_is_kept_and_gradients_are_equal(tiny_model: Path) -> None:
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


class Executed(TorchDispatchMode):
    """Counts what is really computed: a result that recomputation takes from its store does not come by here."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


def test_selective_recomputation_runs_no_matrix_product_or_attention_twice(tiny_model: Path) -> None:
    fresh = load_policy(tiny_model)
    counted = {}
    for how in ("none", "selective", "full"):
        policy = copy.deepcopy(fresh)
        for layer in policy.layers:
            apply_layer_options(layer, LayerOptions(how), device_type="cpu")  # type: ignore[arg-type]
        with Executed() as executed:
            kept_bytes(policy)
        calls = executed.calls
        counted[how] = (calls["_scaled_dot_product_flash_attention_for_cpu"], calls["mm"], calls["silu"])
    assert counted["selective"][:2] == counted["none"][:2]
    assert counted["full"][0] == 2 * counted["none"][0] and counted["full"][1] > counted["none"][1]
    assert counted["selective"][2] == counted["full"][2] == 2 * counted["none"][2]


def _note_type(found: list[torch.dtype], _: Any, __: Any, result: torch.Tensor) -> None:
    found.append(result.dtype)


def test_what_a_section_asks_for_reaches_every_layer(tiny_model: Path, context: DistributedContext) -> None:
    row = pack_row([list(range(60)), list(range(100))], [[5, 9], [7]])
    asked: dict[str, Any] = {"activation_checkpointing": "full", "reshard_after_forward": False}
    for section in (TrainerSection(), TrainerSection(**asked), TrainerSection(dtype="bfloat16")):
        policy = apply_fsdp(load_policy(tiny_model), context.mesh, section)
        results: list[torch.dtype] = []
        policy.layers[0].self_attn.q_proj.register_forward_hook(partial(_note_type, results))
        with Executed() as executed:
            policy(row)[0].sum().backward()
        attended = executed.calls["_scaled_dot_product_flash_attention_for_cpu"] / len(row.seqlens)
        assert attended == len(policy.layers) * (1 if section.activation_checkpointing == "none" else 2)
        assert set(results) == {DTYPES[section.compute_type]}
        with torch.no_grad():
            policy(row)
        held = [isinstance(next(layer.parameters()), DTensor) for layer in policy.layers]
        assert held == [section.reshard_after_forward] * len(policy.layers)


def test_compiled_blocks_are_refused_on_a_processor_with_the_reason(tiny_model: Path) -> None:
    with pytest.raises(
        UnsupportedOption, match=r"trainer\.compile=true is supported on CUDA only, not on cpu"
    ):
        apply_layer_options(load_policy(tiny_model).layers[0], LayerOptions(compile=True), device_type="cpu")


def test_on_cuda_the_forward_of_a_block_is_compiled_for_any_length(
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


def test_a_spec_that_compiles_in_float32_is_refused() -> None:
    document = {"name": "n", "model": {"base_model": "m"}, "dataset": {"version": "d@1"}}
    [error] = spec_errors({**document, "trainer": {"compile": True, "dtype": "float32"}})
    assert (error.pointer, error.code) == ("/trainer/compile", "compile_needs_bfloat16")
    assert spec_errors({**document, "trainer": {"compile": True, "dtype": "bfloat16"}}) == []


def test_a_compiled_block_is_not_compiled_anew_for_each_batch(
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


def test_moments_in_the_hosts_memory_give_the_same_steps() -> None:
    weights = []
    for offload in (False, True):
        torch.manual_seed(1)
        layer = torch.nn.Linear(7, 5)
        optimizer = make_adamw(layer.parameters(), learning_rate=0.1, betas=(0.9, 0.99), offload=offload)
        for _ in range(4):
            layer(torch.randn(3, 7)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        weights.append(layer.weight.detach())
        assert all(state["exp_avg"].device.type == "cpu" for state in optimizer.state.values())
    assert torch.equal(*weights)
