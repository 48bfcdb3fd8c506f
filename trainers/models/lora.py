"""LoRA (arXiv 2106.09685): low-rank adapters beside frozen linear layers.

An adapted layer computes W x + (alpha / rank) B A x. Only A and B are trained, in float32. W is held in the compute
dtype and gets neither gradients nor optimizer state. Without its adapters the policy is the run's initial policy, which
is the reference policy of the KL term.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from oolong.contracts.lora_adapter import fused_with, peft_names
from oolong.contracts.run_spec import LoraSection
from trainers.models.packed_row import PackedRow
from trainers.models.policy import InvalidModel, Policy

ADAPTER_PARAMETERS = ("lora_a", "lora_b")
PeftAdapter = tuple[dict[str, Any], dict[str, torch.Tensor]]  # config and tensors


class LoraLinear(nn.Linear):
    """A frozen linear layer with an adapter. `weight` and `bias` keep the names that they have in the base model."""

    def __init__(self, base: nn.Linear, *, rank: int, scale: float, generator: torch.Generator) -> None:
        super().__init__(base.in_features, base.out_features, bias=False, device="meta")
        self.weight, self.bias = base.weight, base.bias
        self.scale = scale
        self.adapter_enabled = True
        bound = 1 / math.sqrt(base.in_features)
        device = base.weight.device
        self.lora_a = nn.Parameter(
            torch.empty(rank, base.in_features).uniform_(-bound, bound, generator=generator).to(device)
        )
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank, device=device))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        output = functional.linear(input, self.weight, self.bias)
        if not self.adapter_enabled:
            return output
        adapted = functional.linear(functional.linear(input, self.lora_a), self.lora_b)
        return output + adapted * self.scale

    @torch.no_grad()
    def merge(self, weight: torch.Tensor) -> torch.Tensor:
        """Return W + (alpha / rank) B A in float32 for the full W [out, in]. Collective if the model is sharded."""
        product = _full(self.lora_b) @ _full(self.lora_a)
        return weight.float() + product.to(weight.device) * self.scale


def _full(parameter: nn.Parameter) -> torch.Tensor:
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def add_adapters(policy: Policy, section: LoraSection, *, seed: int) -> Policy:
    """Freeze the policy and add an adapter to every target layer, in place, before sharding.

    B is 0, so the adapted policy starts equal to the base. A depends on the seed only and is equal on all ranks.
    """
    policy.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    found: set[str] = set()
    for parent in list(policy.layers.modules()):
        for name, module in list(parent.named_children()):
            if name in section.targets and isinstance(module, nn.Linear):
                found.add(name)
                scale = section.alpha / section.rank
                adapted = LoraLinear(module, rank=section.rank, scale=scale, generator=generator)
                setattr(parent, name, adapted)
    missing = [name for name in section.targets if name not in found]
    if missing:
        linear = {
            path.rpartition(".")[2]
            for path, module in policy.layers.named_modules()
            if isinstance(module, nn.Linear)
        }
        raise InvalidModel(
            f"model.lora.targets={list(section.targets)}: this model of type {policy.config['model_type']!r} has no "
            f"layer {', '.join(missing)}; it has {', '.join(sorted(linear))}. Leave the others out"
        )
    return policy


def adapted_layers(model: nn.Module) -> dict[str, LoraLinear]:
    """Adapted layers by the name of their weight."""
    return {
        f"{name}.weight": module for name, module in model.named_modules() if isinstance(module, LoraLinear)
    }


def peft_adapter(policy: Policy, adapters: dict[str, torch.Tensor]) -> PeftAdapter:
    """PEFT's config and tensors of the adapters that `trainers.distributed.fsdp.gather_adapters` returned."""
    layers = adapted_layers(policy.causal_lm)
    tensors: dict[str, torch.Tensor] = {}
    for name in layers:
        path = name.removesuffix(".weight")
        trained = (adapters[f"{path}.{parameter}"] for parameter in ADAPTER_PARAMETERS)
        tensors |= zip(peft_names(path), trained, strict=True)
    one = next(iter(layers.values()))
    rank = one.lora_a.shape[0]
    targets = {name.split(".")[-2] for name in layers}
    return peft_config(rank=rank, alpha=one.scale * rank, targets=targets), tensors


def peft_config(*, rank: int, alpha: float, targets: Iterable[str]) -> dict[str, Any]:
    """The content of adapter_config.json."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": sorted(targets),
    }


def engine_tensors(policy: Policy, adapters: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """PEFT's tensors of gathered adapters, for an engine: layers that it fuses with adapted ones get zeros."""
    _, tensors = peft_adapter(policy, adapters)
    for name in adapted_layers(policy.causal_lm):
        parent, _, target = name.removesuffix(".weight").rpartition(".")
        first, second = (tensors[one] for one in peft_names(f"{parent}.{target}"))
        for other in fused_with(target):
            a, b = peft_names(f"{parent}.{other}")
            if a not in tensors:
                outputs = policy.causal_lm.get_submodule(f"{parent}.{other}").out_features
                tensors |= {a: torch.zeros_like(first), b: second.new_zeros(outputs, first.shape[0])}
    return tensors


class BasePolicy(nn.Module):
    """The policy without its adapters, on the same weights."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, row: PackedRow, *, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (logprobs [N], entropy [N]) of the base model at temperature."""
        with _adapters_disabled(self.policy):
            result: tuple[torch.Tensor, torch.Tensor] = self.policy(row, temperature=temperature)
            return result


@contextmanager
def _adapters_disabled(policy: Policy) -> Iterator[None]:
    layers = adapted_layers(policy).values()
    for layer in layers:
        layer.adapter_enabled = False
    try:
        yield
    finally:
        for layer in layers:
            layer.adapter_enabled = True
