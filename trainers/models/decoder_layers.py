"""Activation checkpointing and compilation of decoder layers, applied before sharding."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

CheckpointingMode = Literal["none", "selective", "full"]


class UnsupportedOption(Exception):
    """An option of the RunSpec is not supported on this device. The message names it and what to change."""


@dataclass(frozen=True)
class LayerOptions:
    activation_checkpointing: CheckpointingMode = "none"
    compile: bool = False


def apply_layer_options(layer: nn.Module, options: LayerOptions, *, device_type: str) -> None:
    """Wrap the layer's forward in place, so that parameter names stay and FSDP2's hooks remain outermost."""
    if options.activation_checkpointing != "none":
        layer.forward = partial(
            checkpoint,
            layer.forward,
            use_reentrant=False,
            preserve_rng_state=False,  # these layers have no randomness
            **(
                {"context_fn": _selective_contexts} if options.activation_checkpointing == "selective" else {}
            ),
        )
    if options.compile:
        if device_type != "cuda":
            raise UnsupportedOption(
                f"trainer.compile=true is supported on CUDA only, not on {device_type} (there compilation took "
                "half a minute and the layers ran slower); remove trainer.compile"
            )
        layer.forward = torch.compile(layer.forward, dynamic=True)


def _selective_contexts() -> Any:
    return create_selective_checkpoint_contexts(_selective_policy)


def _selective_policy(_: Any, operation: torch._ops.OpOverload, *__: Any, **___: Any) -> CheckpointPolicy:
    """Save the outputs of matrix products and attention; norms, rotations and activations are cheap to recompute."""
    save = operation.overloadpacket.__name__ in _SAVED_OPERATIONS
    return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE


_SAVED_OPERATIONS = frozenset(
    {
        "mm",
        "addmm",
        "bmm",
        "_varlen_attn",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
    }
)
