"""Supported model families: one file and one entry of `FAMILIES` each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.models.families import llama, qwen2, qwen3
from trainers.models.families.family import Family

FAMILIES: dict[str, Family] = {one.model_type: one for one in (qwen2.FAMILY, qwen3.FAMILY, llama.FAMILY)}


def unsupported_reason(config: Mapping[str, Any]) -> str | None:
    """Return why a model with this config cannot be trained, or None if it can."""
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        return f"model_type={config.get('model_type')!r}; supported are {', '.join(FAMILIES)}"
    return family.unsupported_reason(config)
