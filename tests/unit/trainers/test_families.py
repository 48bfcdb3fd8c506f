"""Every family: packed equals alone, equals transformers; a step, an export. Variants are right or refused."""

from __future__ import annotations

import contextlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.family_checks import check_family
from trainers.distributed.context import DistributedContext
from trainers.models import attention
from trainers.models.families import FAMILIES
from trainers.models.packing_check import PackingMismatch, check_packing
from trainers.models.policy import InvalidModel, load_policy

YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 256}
LINEAR = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_computes_and_trains_and_exports_as_transformers_does(
    family: str, tmp_path: Path, context: DistributedContext
) -> None:
    check_family(family, tmp_path, context)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("qwen2", {"tie_word_embeddings": False}),
        ("qwen3", {"tie_word_embeddings": False, "rope_parameters": YARN}),
        ("llama", {"tie_word_embeddings": True, "rope_parameters": LINEAR, "attention_bias": True, "mlp_bias": True}),
    ],
)  # fmt: skip
def test_variants_of_head_bias_and_rotation_are_right(
    family: str, changes: dict[str, Any], tmp_path: Path, context: DistributedContext
) -> None:
    check_family(family, tmp_path, context, **changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"use_sliding_window": True, "sliding_window": 64}, "sliding-window attention"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window attention"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type='dynamic' depends on the length"),
        ({"rope_scaling": {"type": "longrope"}}, "rope_type='longrope'"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantized"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("family", FAMILIES)
def test_variants_that_packing_would_compute_wrongly_are_refused(
    family: str, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family, **changes}))
    with pytest.raises(InvalidModel, match=re.escape(said)):
        load_policy(tmp_path)


def test_the_check_at_the_start_finds_a_model_whose_packed_sequences_see_each_other(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = load_policy(tiny_model)
    assert check_packing(policy, exact=True).packed_error < 1e-5
    right = attention.packed_attention

    def as_one_sequence(*given: Any, seqlens: list[int], **more: Any) -> Any:
        return right(*given, seqlens=[sum(seqlens)], **more)

    attention.AttentionInterface.register(attention.NAME, as_one_sequence)
    try:
        for exact in (True, False):
            with pytest.raises(PackingMismatch, match=r"differ from those of each sequence alone by \d"):
                check_packing(policy, exact=exact)
    finally:
        attention.AttentionInterface.register(attention.NAME, right)
    rounded = load_policy(tiny_model, dtype=torch.bfloat16)
    assert (
        check_packing(rounded, exact=False).packed_error
        < check_packing(rounded, exact=False).half_precision_tolerance
    )


@pytest.mark.parametrize(
    ("factor", "float32_fails", "half_precision_fails"), [(1.003, True, False), (math.nan, True, True)]
)
def test_the_check_bears_a_difference_in_half_precision_only_and_never_what_is_no_number(
    tiny_model: Path, factor: float, float32_fails: bool, half_precision_fails: bool
) -> None:
    """Attention that is off by a factor wherever a row has several sequences."""
    policy = load_policy(tiny_model)
    right = attention.packed_attention

    def off(*given: Any, seqlens: list[int], **more: Any) -> Any:
        attended, nothing = right(*given, seqlens=seqlens, **more)
        return attended * (factor if len(seqlens) > 1 else 1.0), nothing

    attention.AttentionInterface.register(attention.NAME, off)
    try:
        for exact, fails in ((True, float32_fails), (False, half_precision_fails)):
            with pytest.raises(PackingMismatch) if fails else contextlib.nullcontext():
                assert check_packing(policy, exact=exact).packed_error > 3e-4
    finally:
        attention.AttentionInterface.register(attention.NAME, right)
