"""The model families that the trainer computes rightly: a file each, and a line in the table below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.models.families import llama, qwen2, qwen3
from trainers.models.families.family import Family

FAMILIES: dict[str, Family] = {one.model_type: one for one in (qwen2.FAMILY, qwen3.FAMILY, llama.FAMILY)}


def refusal(config: Mapping[str, Any]) -> str | None:
    """Why a model with this config cannot be trained, or None."""
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        return f"model_type={config.get('model_type')!r}; the trainer knows {', '.join(FAMILIES)}"
    return family.refusal(config)
