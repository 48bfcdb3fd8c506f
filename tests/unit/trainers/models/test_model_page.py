"""The example in docs/how-to/model.md is a valid model family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.family_checks import check_family
from tests.support.pages import block
from trainers.distributed.context import DistributedContext
from trainers.models.families import FAMILIES, unsupported_reason

SOURCE = block(Path(__file__).resolve().parents[4] / "docs" / "how-to" / "model.md", "python")


@pytest.fixture
def mistral(monkeypatch: pytest.MonkeyPatch) -> None:
    file: dict[str, Any] = {}
    exec(compile(SOURCE, "mistral.py", "exec"), file)
    monkeypatch.setitem(FAMILIES, "mistral", file["FAMILY"])


def test_undefined_family_is_rejected_by_name() -> None:
    assert (
        unsupported_reason({"model_type": "mistral"})
        == "model_type='mistral'; supported are qwen2, qwen3, llama"
    )


def test_documented_family_matches_transformers(
    mistral: None, tmp_path: Path, context: DistributedContext
) -> None:
    check_family("mistral", tmp_path, context)


def test_documented_family_rejects_sliding_window_configs(mistral: None) -> None:
    assert unsupported_reason({"model_type": "mistral", "sliding_window": None}) is None
    for config in ({}, {"sliding_window": 4096}):
        assert str(unsupported_reason({"model_type": "mistral", **config})).startswith("sliding_window=4096")
