"""Floating-point operations of a forward pass, from a model's config, for load balancing and MFU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ForwardFlops:
    """Cost coefficients. A backward pass costs twice as much as the forward pass; norms and RoPE are neglected."""

    per_token: float  # all matrices of the decoder layers
    per_pair: float  # a query attending to one key: the part that is quadratic in the length
    per_loss_token: float  # the head, which is applied to loss tokens only

    def of_sequence(self, tokens: int, loss_tokens: int) -> float:
        """FLOPs of one sequence under causal attention: token t attends to t + 1 keys."""
        return (
            self.per_token * tokens
            + self.per_pair * tokens * (tokens + 1) / 2
            + self.per_loss_token * loss_tokens
        )


# Used without a model's config: attention costs as much as the rest at 1,024 tokens.
DEFAULT_FLOPS = ForwardFlops(per_token=1.0, per_pair=2 / 1024, per_loss_token=0.0)


def forward_flops(config: Mapping[str, Any]) -> ForwardFlops:
    """Coefficients of a decoder with grouped-query attention and a gated MLP (Llama, Qwen2, Qwen3).

    An m x n matrix costs 2mn per token; q.k and the weighted sum of v cost 2 x head_dim each, per head and pair.
    """
    hidden, layers, heads = (
        config["hidden_size"],
        config["num_hidden_layers"],
        config["num_attention_heads"],
    )
    head = config.get("head_dim") or hidden // heads
    key_value_heads = config.get("num_key_value_heads") or heads
    attention = hidden * head * (2 * heads + 2 * key_value_heads)  # q, o and k, v
    mlp = 3 * hidden * config["intermediate_size"]
    return ForwardFlops(
        per_token=2.0 * layers * (attention + mlp),
        per_pair=4.0 * layers * heads * head,
        per_loss_token=2.0 * hidden * config["vocab_size"],
    )


def load_forward_flops(directory: Path) -> ForwardFlops:
    return forward_flops(json.loads((directory / "config.json").read_text()))
