"""Attention over packed rows: many sequences in one row, none of which sees another.

transformers isolates packed sequences by itself only when there is neither a mask nor a cache; given either it
silently lets them see each other. So the boundaries are passed in explicitly, as cumulative lengths, and an
attention function of our own obeys them: a loop of dense causal attention on the CPU, the variable-length kernel
on CUDA. Its mask function makes no mask at all.
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
# Before torch 2.12 the kernel wants as many heads of keys and values as of queries.
KERNEL_GROUPS = "enable_gqa" in inspect.signature(varlen_attn).parameters


def register() -> None:
    """Make `attn_implementation="oolong_packed"` known to transformers. Registering twice changes nothing."""
    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, no_mask)


def no_mask(*_: Any, **__: Any) -> None:
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
    seqlens: list[int],  # the same boundaries as lengths, on the host; the kernel does not read them
    longest: int | None = None,  # the largest of them, where it is known
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention inside each sequence of the row. Returns [1, T, heads, D] and no attention weights."""
    if attention_mask is not None:
        raise ValueError(
            "packed attention takes its boundaries from cu_seqlens; an attention mask was given too"
        )
    if sliding_window is not None:
        raise ValueError(
            f"packed attention has no sliding window, and this model asks for one of {sliding_window}"
        )
    if takes_kernel(query):
        return _varlen(query, key, value, scaling, cu_seqlens, longest or max(seqlens)), None
    grouped = query.shape[1] != key.shape[1]
    parts = [
        scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=grouped)
        for q, k, v in zip(
            query.split(seqlens, dim=2), key.split(seqlens, dim=2), value.split(seqlens, dim=2), strict=True
        )
    ]
    return torch.cat(parts, dim=2).transpose(1, 2), None


def takes_kernel(query: torch.Tensor) -> bool:
    """The variable-length kernel has no float32."""
    return query.is_cuda and query.dtype in (torch.bfloat16, torch.float16)


def _varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
    cu_seqlens: torch.Tensor,
    longest: int,
) -> torch.Tensor:
    """[1, T, heads, D] by the variable-length kernel."""
    q, k, v = (tensor.squeeze(0).transpose(0, 1).contiguous() for tensor in (query, key, value))
    grouped = query.shape[1] // key.shape[1]
    options: dict[str, Any] = {"scale": scaling, "window_size": (-1, 0)}  # causal
    if grouped > 1 and KERNEL_GROUPS:
        options["enable_gqa"] = True
    elif grouped > 1:
        k, v = (tensor.repeat_interleave(grouped, dim=1) for tensor in (k, v))
    attended = varlen_attn(q, k, v, cu_seqlens, cu_seqlens, longest, longest, **options)  # [T, heads, D]
    return attended.unsqueeze(0)
