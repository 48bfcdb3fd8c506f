"""The complete file of docs/how-to/model.md is a family, and holds what is asked of one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.family_checks import check_family
from trainers.distributed.context import DistributedContext
from trainers.models.families import FAMILIES, unsupported_reason

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "model.md").read_text()
[SOURCE] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def mistral(monkeypatch: pytest.MonkeyPatch) -> None:
    file: dict[str, Any] = {}
    exec(compile(SOURCE, "mistral.py", "exec"), file)
    monkeypatch.setitem(FAMILIES, "mistral", file["FAMILY"])


def test_without_the_file_the_family_is_refused_by_name() -> None:
    assert (
        unsupported_reason({"model_type": "mistral"})
        == "model_type='mistral'; supported are qwen2, qwen3, llama"
    )


def test_with_the_file_it_computes_trains_and_exports_as_transformers_does(
    mistral: None, tmp_path: Path, context: DistributedContext
) -> None:
    check_family("mistral", tmp_path, context)


def test_its_first_version_with_the_sliding_window_is_refused(mistral: None) -> None:
    assert unsupported_reason({"model_type": "mistral", "sliding_window": None}) is None
    for config in ({}, {"sliding_window": 4096}):
        assert str(unsupported_reason({"model_type": "mistral", **config})).startswith("sliding_window=4096")
