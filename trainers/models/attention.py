"""Causal attention over packed rows: many sequences in one row, isolated from each other.

transformers isolates packed sequences by itself only without a mask and without a cache; given either, it silently lets
them attend to each other. Therefore this attention function takes the sequence boundaries explicitly, as cumulative
lengths: the variable-length kernel on CUDA, a loop of dense causal attention on the CPU. Its mask function returns no
mask.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

NAME = "oolong_packed"
# Before torch 2.12 the kernel requires as many key and value heads as query heads.
KERNEL_SUPPORTS_GQA = "enable_gqa" in inspect.signature(varlen_attn).parameters


def register() -> None:
    """Register `attn_implementation="oolong_packed"` with transformers. Idempotent."""
    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, no_attention_mask)


def no_attention_mask(*_: Any, **__: Any) -> None:
    return None


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,  # [1, heads, T, D]
    key: torch.Tensor,  # [1, kv heads, T, D]
    value: torch.Tensor,  # [1, kv heads, T, D]
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    *,
    cu_seqlens: torch.Tensor,  # int32 [sequences + 1], 0 first and T last
    seqlens: list[int],  # the sequence lengths on the host; unused by the kernel
    max_seqlen: int | None = None,  # max(seqlens), if known
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each sequence of the row. Returns [1, T, heads, D] and no attention weights."""
    if attention_mask is not None:
        raise ValueError(
            "packed attention takes sequence boundaries from cu_seqlens, but an attention mask was passed too"
        )
    if sliding_window is not None:
        raise ValueError(
            f"packed attention does not support sliding windows, but this model uses sliding_window={sliding_window}"
        )
    if uses_varlen_kernel(query):
        return _varlen_attention(query, key, value, scaling, cu_seqlens, max_seqlen or max(seqlens)), None
    grouped = query.shape[1] != key.shape[1]
    parts = [
        scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=grouped)
        for q, k, v in zip(
            query.split(seqlens, dim=2), key.split(seqlens, dim=2), value.split(seqlens, dim=2), strict=True
        )
    ]
    return torch.cat(parts, dim=2).transpose(1, 2), None


def uses_varlen_kernel(query: torch.Tensor) -> bool:
    """The variable-length kernel does not support float32."""
    return query.is_cuda and query.dtype in (torch.bfloat16, torch.float16)


def _varlen_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
) -> torch.Tensor:
    """[1, T, heads, D] by the variable-length kernel."""
    q, k, v = (tensor.squeeze(0).transpose(0, 1).contiguous() for tensor in (query, key, value))
    grouped = query.shape[1] // key.shape[1]
    options: dict[str, Any] = {"scale": scaling, "window_size": (-1, 0)}  # causal
    if grouped > 1 and KERNEL_SUPPORTS_GQA:
        options["enable_gqa"] = True
    elif grouped > 1:
        k, v = (tensor.repeat_interleave(grouped, dim=1) for tensor in (k, v))
    attended = varlen_attn(
        q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, **options
    )  # [T, heads, D]
    return attended.unsqueeze(0)
