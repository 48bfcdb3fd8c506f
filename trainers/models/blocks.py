"""What is done to each decoder layer before it is sharded: recomputation of activations, compilation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

Recomputation = Literal["none", "selective", "full"]


class OptionRefused(Exception):
    """An option of the spec cannot be had here; the message names it and the way out."""


@dataclass(frozen=True)
class BlockOptions:
    activation_checkpointing: Recomputation = "none"
    compile: bool = False


def prepare_block(layer: nn.Module, options: BlockOptions, *, device_type: str) -> None:
    """Change the layer's forward in place. Its parameters keep their names, and FSDP2's hooks stay outside."""
    if options.activation_checkpointing != "none":
        layer.forward = partial(
            checkpoint,
            layer.forward,
            use_reentrant=False,
            preserve_rng_state=False,  # nothing in these layers is random
            **({"context_fn": _keep_what_is_dear} if options.activation_checkpointing == "selective" else {}),
        )
    if options.compile:
        if device_type != "cuda":
            raise OptionRefused(
                f"trainer.compile=true on {device_type}: compiled blocks are for CUDA (on a processor they took half a "
                "minute to compile and ran slower); leave trainer.compile out"
            )
        layer.forward = torch.compile(layer.forward, dynamic=True)


def _keep_what_is_dear() -> Any:
    return create_selective_checkpoint_contexts(_dear_operations)


def _dear_operations(_: Any, operation: torch._ops.OpOverload, *__: Any, **___: Any) -> CheckpointPolicy:
    """Keep the results of matrix products and attention; norms, rotations and activations are cheap to have again."""
    kept = operation.overloadpacket.__name__ in _DEAR
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


_DEAR = frozenset(
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
