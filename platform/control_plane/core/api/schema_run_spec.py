"""The RunSpec and its parts in the OpenAPI document. Their JSON Schema is that of pydantic, which checks them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from oolong.contracts.run_spec import RunSpec

PREFIX = "RunSpec"  # of its sections, so that `RewardSection` is `RunSpecRewardSection`
_COMPONENT = f"#/components/schemas/{PREFIX}"
_PART, _PATCH = "Part", "Patch"  # infixes, so that a section of a patch is `RunSpecPatchRewardSection`
REFERENCE = {"$ref": _COMPONENT}


@extend_schema_field(REFERENCE)
class RunSpecField(serializers.DictField):
    """A whole RunSpec."""


@extend_schema_field({"$ref": f"{_COMPONENT}{_PART}"})
class RunSpecPartField(serializers.DictField):
    """Fields of a RunSpec, of which any may be missing, as in a template."""


@extend_schema_field({"$ref": f"{_COMPONENT}{_PATCH}"})
class RunSpecPatchField(serializers.DictField):
    """Changes to a RunSpec, as a JSON Merge Patch (RFC 7396): null restores a field's default."""


@extend_schema_field({"$ref": f"{_COMPONENT}RewardSection"})
class RewardSectionField(serializers.DictField):
    """The section `reward` of a RunSpec."""


@extend_schema_field({"$ref": f"{_COMPONENT}RewardTestSection"})
class RewardTestSectionField(serializers.DictField):
    """The section `reward_test` of a RunSpec."""


def add_run_spec(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Postprocessing: the RunSpec, a part of it, a patch of it, and their sections, as components."""
    whole = _without_titles(RunSpec.model_json_schema(ref_template=f"{_COMPONENT}{{model}}"))
    sections = whole.pop("$defs")
    schemas = {PREFIX: whole, **{f"{PREFIX}{name}": section for name, section in sections.items()}}
    merged = sorted({name for schema in schemas.values() for name in _merged_sections(schema)})
    incomplete = [name for name in merged if "required" in sections[name]]
    for infix, loosen, names in ((_PART, _part, incomplete), (_PATCH, _patch, merged)):
        loosened = {"": whole, **{name: sections[name] for name in names}}
        schemas |= {
            f"{PREFIX}{infix}{name}": _redirected(loosen(schema), infix, names)
            for name, schema in loosened.items()
        }
    result["components"]["schemas"] |= schemas
    return result


def fields_of_spec(pointers: Iterable[str], *, required: Sequence[str] = ()) -> dict[str, Any]:
    """The schema of an object with these fields or sections of a RunSpec and no other: `/dataset`, `/staleness/max`."""
    whole = RunSpec.model_json_schema(ref_template=f"{_COMPONENT}{{model}}")
    properties: dict[str, Any] = {}
    for pointer in pointers:
        section, _, field = pointer[1:].partition("/")
        schema = whole["properties"][section]
        if field:
            found = properties.setdefault(section, _object({}))
            name = schema["$ref"].removeprefix(_COMPONENT)
            found["properties"][field] = _without_default(whole["$defs"][name]["properties"][field])
        else:
            properties[section] = _without_default(schema)
    return _without_titles(_object(properties)) | ({"required": list(required)} if required else {})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _part(schema: dict[str, Any]) -> dict[str, Any]:
    return _object({name: _without_default(field) for name, field in schema["properties"].items()})


def _patch(schema: dict[str, Any]) -> dict[str, Any]:
    fields = _part(schema)["properties"]
    return _object({name: _or_null(field) for name, field in fields.items()})


def _or_null(field: dict[str, Any]) -> dict[str, Any]:
    if {"type": "null"} in field.get("anyOf", ()):
        return field
    said = {"description": field["description"]} if "description" in field else {}
    return {"anyOf": [{key: field[key] for key in field if key not in said}, {"type": "null"}], **said}


def _without_default(field: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in field.items() if key != "default"}


def _merged_sections(schema: Any) -> Iterator[str]:
    """Sections that a patch merges field by field. A list is replaced as a whole, so its items are complete."""
    if isinstance(schema, list):
        for value in schema:
            yield from _merged_sections(value)
    elif isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].removeprefix(_COMPONENT)
        for key, value in schema.items():
            if key != "items":
                yield from _merged_sections(value)


def _redirected(schema: Any, infix: str, names: Collection[str]) -> Any:
    """With references to the loosened sections, not to the whole ones."""
    if isinstance(schema, list):
        return [_redirected(value, infix, names) for value in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {
        key: value if key == "items" else _redirected(value, infix, names) for key, value in schema.items()
    }
    if (name := schema.get("$ref", "").removeprefix(_COMPONENT)) in names:
        changed["$ref"] = f"{_COMPONENT}{infix}{name}"
    return changed


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
