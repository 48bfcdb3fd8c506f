"""The LoRA adapter of a policy version as engines load it, in PEFT's format: files, layers, tensor names and shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from oolong.contracts.run_spec.inputs import LORA_TARGETS, LoraTarget

ADAPTER_CONFIG_FILE = "adapter_config.json"
ADAPTER_WEIGHTS_FILE = "adapter_model.safetensors"
BASE_FILE = "base.json"  # beside them in a checkpoint: AdapterBase


class WeightsReference(msgspec.Struct, frozen=True, kw_only=True):
    """The weights that a run starts from."""

    kind: str = ""  # base_model | checkpoint; "": not known
    id: str = ""
    sha256: str = ""  # of the manifest of its files


class AdapterBase(WeightsReference, frozen=True, kw_only=True):
    """The weights that an adapter is for, and the type in which the trainer held them: float32, bfloat16, float16."""

    dtype: str


# SGLang computes the layers of a group as one. It loads an adapter of such a layer only together with the others'.
_FUSED: tuple[tuple[LoraTarget, ...], ...] = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


def fused_with(target: str) -> tuple[LoraTarget, ...]:
    """The layers that an engine computes together with this one, itself included."""
    return next((group for group in _FUSED if target in group), ())


def engine_targets(targets: Iterable[str]) -> list[LoraTarget]:
    """Layers that have an adapter in the engine: the targets, and what is fused with them."""
    wanted = {layer for target in targets for layer in (target, *fused_with(target))}
    return [target for target in LORA_TARGETS if target in wanted]


def peft_names(layer: str) -> tuple[str, str]:
    """PEFT's names of A and B of a layer such as model.layers.0.mlp.up_proj."""
    return f"base_model.model.{layer}.lora_A.weight", f"base_model.model.{layer}.lora_B.weight"


def engine_tensor_shapes(
    base: Mapping[str, tuple[int, ...]], *, rank: int, targets: Iterable[str]
) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all tensors of an adapter for an engine, from the base model's tensors."""
    adapted = engine_targets(targets)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in base.items():
        layer, _, parameter = name.rpartition(".")
        if parameter == "weight" and layer.rpartition(".")[2] in adapted:
            outputs, inputs = shape
            a, b = peft_names(layer)
            shapes |= {a: (rank, inputs), b: (outputs, rank)}
    return shapes
