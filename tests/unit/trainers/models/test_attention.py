"""Packing is correct only if no sequence is affected by the others in its row."""

from __future__ import annotations

import random
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from trainers.models import attention
from trainers.models.attention import packed_attention
from trainers.models.packed_row import pack_row
from trainers.models.policy import Policy, load_policy


@pytest.fixture(scope="module")
def policy(tiny_model: Path) -> Policy:
    return load_policy(tiny_model)


def random_sequences(count: int, *, seed: int = 1) -> tuple[list[list[int]], list[list[int]]]:
    rng = random.Random(seed)
    sequences = [[rng.randrange(256) for _ in range(rng.randint(2, 60))] for _ in range(count)]
    return sequences, [list(range(1, len(sequence))) for sequence in sequences]


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    found = {
        name: parameter.grad.clone()
        for name, parameter in policy.named_parameters()
        if parameter.grad is not None
    }
    policy.zero_grad()
    return found


def test_packed_logprobs_equal_those_of_each_sequence_alone(policy: Policy) -> None:
    sequences, wanted = random_sequences(13)
    packed, _ = policy(pack_row(sequences, wanted))
    alone = torch.cat(
        [policy(pack_row([one], [places]))[0] for one, places in zip(sequences, wanted, strict=True)]
    )
    assert float((packed - alone).detach().abs().max()) < 2e-6


def test_packed_logprobs_equal_those_of_transformers_without_packing(
    policy: Policy, tiny_model: Path
) -> None:
    """Against transformers' own attention, so that a fault of ours cannot hide on both sides."""
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(tiny_model, attn_implementation="eager")
    sequences, wanted = random_sequences(9, seed=2)
    row = pack_row(sequences, wanted)
    ours, entropy = policy(row)
    logits = [plain(torch.tensor([one]), use_cache=False).logits[0, :-1] for one in sequences]
    theirs = torch.cat(logits).log_softmax(-1)
    torch.testing.assert_close(ours, theirs.gather(1, row.targets[:, None])[:, 0], atol=2e-6, rtol=0)
    torch.testing.assert_close(entropy, -(theirs.exp() * theirs).sum(-1), atol=1e-5, rtol=0)


def test_packed_gradients_equal_the_sum_of_each_sequences_own(policy: Policy) -> None:
    sequences, wanted = random_sequences(11, seed=3)
    policy(pack_row(sequences, wanted))[0].sum().backward()
    packed = gradients(policy)
    for one, places in zip(sequences, wanted, strict=True):
        policy(pack_row([one], [places]))[0].sum().backward()
    alone = gradients(policy)
    assert packed.keys() == alone.keys()
    for name, gradient in packed.items():
        assert float((gradient - alone[name]).norm() / alone[name].norm()) < 3e-6, name


class LogitsMade(TorchDispatchMode):
    """Watches how many positions get logits: rows of the matrix products as wide as the vocabulary."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary, self.rows = vocabulary, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        if function.overloadpacket.__name__ == "mm" and made.shape[1] == self.vocabulary:
            self.rows += made.shape[0]
        return made


def test_head_is_applied_to_target_positions_only(policy: Policy) -> None:
    sequences, _ = random_sequences(4)
    row = pack_row(sequences, [[1], [], [1], [1]])
    whole, _ = policy(pack_row(sequences, [range(1, len(one)) for one in sequences]))
    starts = [0, *accumulate(len(one) - 1 for one in sequences)]
    with torch.no_grad(), LogitsMade(int(policy.config["vocab_size"])) as logits:
        few, _ = policy(row)
    assert logits.rows == 3
    torch.testing.assert_close(few, whole[[starts[0], starts[2], starts[3]]], atol=2e-6, rtol=0)


def test_sequences_of_a_row_are_isolated(policy: Policy) -> None:
    sequences, wanted = random_sequences(4, seed=4)
    before = policy(pack_row(sequences, wanted))[0]
    changed = [[token ^ 1 for token in sequences[0]], *sequences[1:]]
    after = policy(pack_row(changed, wanted))[0]
    first = len(wanted[0])
    assert not torch.equal(before[:first], after[:first])
    assert torch.equal(before[first:], after[first:])


def test_attention_mask_and_sliding_window_are_rejected() -> None:
    from trainers.models.attention import packed_attention

    rows = torch.zeros(1, 2, 3, 4)
    edges = torch.tensor([0, 3], dtype=torch.int32)
    with pytest.raises(ValueError, match="attention mask"):
        packed_attention(torch.nn.Module(), rows, rows, rows, torch.ones(1, 3), cu_seqlens=edges, seqlens=[3])
    with pytest.raises(ValueError, match="sliding window"):
        packed_attention(
            torch.nn.Module(), rows, rows, rows, None, cu_seqlens=edges, seqlens=[3], sliding_window=2
        )


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_packed_logprobs_of_other_families_equal_single_sequences(family: str, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        family, vocab_size=264, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, max_position_embeddings=256, tie_word_embeddings=family == "qwen2", bos_token_id=None,
        pad_token_id=256, eos_token_id=257,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    policy = load_policy(tmp_path)
    sequences, wanted = random_sequences(6, seed=5)
    packed, _ = policy(pack_row(sequences, wanted))
    alone = torch.cat(
        [policy(pack_row([one], [places]))[0] for one, places in zip(sequences, wanted, strict=True)]
    )
    assert float((packed - alone).detach().abs().max()) < 2e-6


@pytest.mark.parametrize(
    "groups_heads", [True, False], ids=["kernel groups heads", "kernel of an older torch"]
)
def test_varlen_kernel_receives_its_tensor_layout(
    monkeypatch: pytest.MonkeyPatch, groups_heads: bool
) -> None:
    """The kernel needs CUDA. In its place stands its definition: [T, heads, D] in and out, causal by the window."""

    def kernel(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, edges: torch.Tensor, _: object, longest: int, __: int,
        *, scale: float | None, window_size: tuple[int, int], enable_gqa: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        assert window_size == (-1, 0) and longest == 7 and q.is_contiguous()
        assert enable_gqa is groups_heads and (enable_gqa or q.shape == k.shape)
        parts = []
        for start, end in pairwise(edges.tolist()):
            part = [tensor[start:end].transpose(0, 1)[None] for tensor in (q, k, v)]
            parts.append(
                scaled_dot_product_attention(*part, is_causal=True, scale=scale, enable_gqa=enable_gqa)
            )
        return torch.cat(parts, dim=2)[0].transpose(0, 1)

    query = torch.randn(1, 4, 12, 8)
    key, value = torch.randn(2, 1, 2, 12, 8)
    edges = torch.tensor([0, 5, 12], dtype=torch.int32)
    given = (torch.nn.Module(), query, key, value, None, 0.3)
    looped, _ = packed_attention(*given, cu_seqlens=edges, seqlens=[5, 7], max_seqlen=7)
    monkeypatch.setattr(attention, "uses_varlen_kernel", lambda query: True)
    monkeypatch.setattr(attention, "varlen_attn", kernel)
    monkeypatch.setattr(attention, "KERNEL_SUPPORTS_GQA", groups_heads)
    by_kernel, _ = packed_attention(*given, cu_seqlens=edges, seqlens=[5, 7], max_seqlen=7)
    torch.testing.assert_close(by_kernel, looped)
