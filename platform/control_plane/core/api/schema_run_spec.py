"""The RunSpec in the OpenAPI document: its JSON Schema is that of pydantic, which checks it."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from oolong.contracts.run_spec import RunSpec

PREFIX = "RunSpec"  # of its sections, so that `RewardSection` is `RunSpecRewardSection`
_COMPONENT = f"#/components/schemas/{PREFIX}"
REFERENCE = {"$ref": _COMPONENT}


@extend_schema_field(REFERENCE)
class RunSpecField(serializers.DictField):
    """A whole RunSpec. The fields of a part of one, such as a template, are a DictField."""


def add_run_spec(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Postprocessing: the RunSpec and its sections, as components."""
    schema = _without_titles(RunSpec.model_json_schema(ref_template=f"{_COMPONENT}{{model}}"))
    sections = {f"{PREFIX}{name}": section for name, section in schema.pop("$defs").items()}
    result["components"]["schemas"] |= {PREFIX: schema, **sections}
    return result


def _without_titles(schema: Any) -> Any:
    """pydantic's titles repeat the names of fields."""
    if isinstance(schema, list):
        return [_without_titles(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_titles(value)
        for name, value in schema.items()
        if name != "title" or not isinstance(value, str)
    }
