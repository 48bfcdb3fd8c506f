from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from trainers.models import attention
from trainers.models.packing_check import PackingMismatch, check_packing
from trainers.models.policy import load_policy


def test_packing_check_detects_missing_isolation(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_packing_check_tolerates_rounding_in_half_precision_only_and_never_nan(
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
