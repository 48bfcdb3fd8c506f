"""What a model family is to the trainer, and what no family here may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# Their frequencies follow from the config and the position alone. Those of `dynamic` and `longrope` follow from the
# longest position of a forward pass, which in a packed row is another sequence's.
ROTATIONS = ("default", "linear", "yarn", "llama3")


def refuse_variants(config: Mapping[str, Any]) -> str | None:
    """Variants that packed rows or the engine would compute differently from the model's authors."""
    if config.get("quantization_config"):
        return "it is quantised (quantization_config); train the unquantised model"
    rotation = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rotation.get("rope_type") or rotation.get("type") or "default"
    if kind not in ROTATIONS:
        return (
            f"rope_type={kind!r} depends on the length of the row it is in; right are {', '.join(ROTATIONS)}"
        )
    if config.get("use_sliding_window") or "sliding_attention" in (config.get("layer_types") or ()):
        return "sliding-window attention (use_sliding_window, layer_types); packed attention is full causal attention"
    return None


@dataclass(frozen=True)
class Family:
    model_type: str  # of config.json
    tiny: Mapping[str, Any] = field(
        default_factory=dict
    )  # config of its tiny model, beyond the common part: tests
    refusal: Callable[[Mapping[str, Any]], str | None] = refuse_variants  # of a config: a reason, or None
