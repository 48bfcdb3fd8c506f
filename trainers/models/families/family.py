"""The definition of a model family, and config features that no family supports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# Their frequencies depend on the config and the position only. Those of `dynamic` and `longrope` depend on the largest
# position of the forward pass, which in a packed row may belong to another sequence.
ROPE_TYPES = ("default", "linear", "yarn", "llama3")


def unsupported_features(config: Mapping[str, Any]) -> str | None:
    """Return why a config is unsupported (packed rows or the engine would compute it incorrectly), or None."""
    if config.get("quantization_config"):
        return "the model is quantized (quantization_config); train the unquantized model"
    rotation = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rotation.get("rope_type") or rotation.get("type") or "default"
    if kind not in ROPE_TYPES:
        return f"rope_type={kind!r} depends on the length of the packed row; supported are {', '.join(ROPE_TYPES)}"
    if config.get("use_sliding_window") or "sliding_attention" in (config.get("layer_types") or ()):
        return (
            "sliding-window attention (use_sliding_window, layer_types) is not supported: packed attention is full "
            "causal attention"
        )
    return None


@dataclass(frozen=True)
class Family:
    model_type: str  # of config.json
    # Config overrides of its tiny test model (`trainers.models.tiny`).
    tiny_config: Mapping[str, Any] = field(default_factory=dict)
    # Given a config, returns why it is unsupported, or None.
    unsupported_reason: Callable[[Mapping[str, Any]], str | None] = unsupported_features
