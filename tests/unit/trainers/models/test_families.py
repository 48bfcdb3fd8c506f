"""Every family matches transformers when packed, trains and exports. Unsupported variants are rejected."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.family_checks import check_family
from trainers.distributed.context import DistributedContext
from trainers.models.families import FAMILIES
from trainers.models.policy import InvalidModel, load_policy

YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 256}


LINEAR = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}


@pytest.mark.parametrize("family", FAMILIES)
def test_family_matches_transformers_in_forward_training_and_export(
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
def test_variants_of_head_bias_and_rope_match_transformers(
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
def test_unsupported_config_features_are_rejected(
    family: str, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family, **changes}))
    with pytest.raises(InvalidModel, match=re.escape(said)):
        load_policy(tmp_path)
