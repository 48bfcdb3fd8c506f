from __future__ import annotations

import pytest

from trainers.models.flops import forward_flops

QWEN3_0_6B = {
    "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
}  # fmt: skip


def test_flops_of_qwen3_0_6b_match_its_matrices() -> None:
    """The layers' matrices have 440 million parameters; each costs 2 FLOPs per token."""
    cost = forward_flops(QWEN3_0_6B)
    layer = 1024 * 128 * (16 + 8 + 8 + 16) + 3 * 1024 * 3072
    assert cost.per_token == 2 * 28 * layer == pytest.approx(2 * 440.4e6, rel=1e-3)
    assert cost.per_pair == 28 * 16 * (2 * 128 + 2 * 128)  # q.k and the weighted sum of v
    assert cost.per_loss_token == 2 * 1024 * 151936
    assert (
        cost.of_sequence(3, 2) == 3 * cost.per_token + (1 + 2 + 3) * cost.per_pair + 2 * cost.per_loss_token
    )
