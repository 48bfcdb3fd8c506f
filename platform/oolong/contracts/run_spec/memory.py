"""Rough sizes of what a slot has to hold. They leave out activations and fragmentation: a floor, not a promise."""

from __future__ import annotations

from typing import Any

from oolong.contracts.run_spec.spec import RunSpec


def trainer_bytes(spec: RunSpec, parameters: int) -> int:
    """Per rank: float32 master weights, gradients and Adam's two moments, sharded over the ranks (FSDP)."""
    moments = 0 if spec.trainer.offload_optimizer else 8
    copy = 2 if spec.trainer.compute_type == "bfloat16" else 0
    policy = parameters * (4 + 4 + moments + copy)
    critic = policy if spec.algorithm.critic is not None else 0
    reference = parameters * 4 if spec.algorithm.kl is not None else 0
    return (policy + critic + reference) // spec.trainer.ranks


def engine_bytes(spec: RunSpec, parameters: int, kv_bytes_per_token: int) -> int:
    """One engine: a whole copy of the weights, and the cache that it is told to have."""
    weights = parameters * (2 if spec.trainer.compute_type == "bfloat16" else 4)
    return weights + kv_bytes_per_token * spec.rollout.engine_max_total_tokens


def kv_bytes_per_token(config: dict[str, Any]) -> int | None:
    """Of a Hugging Face config.json: keys and values of every layer in 2-byte numbers; None when it does not say."""
    layers, heads = config.get("num_hidden_layers"), config.get("num_attention_heads")
    hidden = config.get("hidden_size")
    if not (isinstance(layers, int) and isinstance(heads, int) and isinstance(hidden, int) and heads > 0):
        return None
    kv_heads = config.get("num_key_value_heads") or heads
    head = config.get("head_dim") or hidden // heads
    if not (isinstance(kv_heads, int) and isinstance(head, int)):
        return None
    return 2 * layers * kv_heads * head * 2
