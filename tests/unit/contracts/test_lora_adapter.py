"""What an adapter for an engine consists of."""

from __future__ import annotations

from oolong.contracts.lora_adapter import engine_targets, engine_tensor_shapes, fused_with

BASE = {
    "model.embed_tokens.weight": (10, 4),
    "model.layers.0.self_attn.q_proj.weight": (8, 4),
    "model.layers.0.self_attn.q_proj.bias": (8,),
    "model.layers.0.self_attn.k_proj.weight": (2, 4),
    "model.layers.0.self_attn.v_proj.weight": (2, 4),
    "model.layers.0.self_attn.q_norm.weight": (2,),
    "model.layers.0.mlp.down_proj.weight": (4, 6),
}


def test_layers_that_an_engine_fuses_have_an_adapter_together() -> None:
    assert engine_targets(["down_proj"]) == ["down_proj"]
    assert engine_targets(["v_proj"]) == ["q_proj", "k_proj", "v_proj"]
    assert engine_targets(["up_proj", "o_proj"]) == ["o_proj", "gate_proj", "up_proj"]
    assert fused_with("o_proj") == ()


def test_adapter_tensors_have_the_sizes_of_their_layers() -> None:
    shapes = engine_tensor_shapes(BASE, rank=3, targets=["k_proj", "down_proj"])
    prefix = "base_model.model.model.layers.0"
    assert shapes == {
        f"{prefix}.self_attn.q_proj.lora_A.weight": (3, 4),
        f"{prefix}.self_attn.q_proj.lora_B.weight": (8, 3),
        f"{prefix}.self_attn.k_proj.lora_A.weight": (3, 4),
        f"{prefix}.self_attn.k_proj.lora_B.weight": (2, 3),
        f"{prefix}.self_attn.v_proj.lora_A.weight": (3, 4),
        f"{prefix}.self_attn.v_proj.lora_B.weight": (2, 3),
        f"{prefix}.mlp.down_proj.lora_A.weight": (3, 6),
        f"{prefix}.mlp.down_proj.lora_B.weight": (4, 3),
    }
