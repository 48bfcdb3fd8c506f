"""Messages of the agents' protocol in the OpenAPI document: their JSON Schema is that of msgspec, which checks them."""

from __future__ import annotations

from typing import Any

import msgspec
from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent

PREFIX = "Agent"  # of the types within a message: a `ModelFile` of the API is another one


class MessageExtension(OpenApiSerializerExtension):
    target_class = msgspec.Struct
    match_subclasses = True

    def get_name(self, auto_schema: AutoSchema, direction: Any) -> str:
        return str(self.target.__name__)

    def map_serializer(self, auto_schema: AutoSchema, direction: Any) -> dict[str, Any]:
        _, components = msgspec.json.schema_components(
            [self.target], schema_hook=_any_value, ref_template=f"#/components/schemas/{PREFIX}{{name}}"
        )
        schema: dict[str, Any] = components.pop(self.target.__name__)
        for name, inner in components.items():
            component = ResolvedComponent(
                name=f"{PREFIX}{name}", type=ResolvedComponent.SCHEMA, object=f"{PREFIX}{name}", schema=inner
            )
            auto_schema.registry.register_on_missing(component)
        return schema


def _any_value(kind: type) -> dict[str, Any]:
    """Values of an open object, as a RunSpec on its way to a node."""
    if kind is not object:
        raise NotImplementedError
    return {"description": "any JSON value"}
