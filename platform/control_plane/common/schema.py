"""How views describe themselves in the OpenAPI document (drf-spectacular)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, inline_serializer
from rest_framework import serializers

from oolong.contracts.lifecycle import RunStatus
from oolong.contracts.user_source import SourceKind

# Choices that more than one serializer shows, named once for the schema.
RUN_STATUSES = [str(status) for status in RunStatus]
ROLES = ["viewer", "editor", "operator", "admin"]  # accounts.models.Role
RUN_KINDS = ["rl", "sft", "eval", "bench", "playground"]
CHECKPOINT_KINDS = ["training", "weights"]
MODEL_KINDS = ["base_model", "checkpoint"]
INVITATION_STATUSES = ["open", "accepted", "revoked", "expired"]
SOURCE_KINDS = [str(kind) for kind in SourceKind]
NODE_STATUSES = ["READY", "UNRESPONSIVE", "CORDONED", "DRAINING", "DRAINED", "LOST"]


class FieldErrorSerializer(serializers.Serializer[Any]):
    pointer = serializers.CharField(help_text="JSON pointer to the field")
    code = serializers.CharField()
    message = serializers.CharField()


class ProblemSerializer(serializers.Serializer[Any]):
    """RFC 9457."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    code = serializers.CharField(help_text="stable; branch on this")
    request_id = serializers.CharField()
    errors = FieldErrorSerializer(many=True)


_IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key", OpenApiTypes.STR, OpenApiParameter.HEADER,
    description="makes the call safe to repeat: the same key and body get the first answer again, for 24 hours",
)  # fmt: skip
_IF_MATCH = OpenApiParameter(
    "If-Match", OpenApiTypes.STR, OpenApiParameter.HEADER,
    description="the ETag that a GET of this address gave; when it is another by now, the answer is 412",
)  # fmt: skip


class ProblemAwareSchema(AutoSchema):
    """Adds the problem document as the `default` response of every operation."""

    def get_tags(self) -> list[str]:
        return [self.view.__module__.split(".")[1]]

    def is_deprecated(self) -> bool:
        return bool(getattr(self._handler(), "deprecated", False)) or super().is_deprecated()

    def get_override_parameters(self) -> list[Any]:
        """The headers that a decorator of the handler reads: nobody has to write them a second time."""
        handler = self._handler()
        own: list[Any] = list(super().get_override_parameters())
        if getattr(handler, "idempotent", False):
            own.append(_IDEMPOTENCY_KEY)
        if getattr(handler, "conditional", False):
            own.append(_IF_MATCH)
        return own

    def _handler(self) -> Any:
        return getattr(self.view, self.method.lower(), None)

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> dict[str, Any]:
        bodies = super()._get_response_bodies(direction)
        if "default" not in bodies:
            problem = OpenApiResponse(ProblemSerializer, description="what went wrong (RFC 9457)")
            bodies["default"] = self._get_response_for_code(problem, "default", ["application/problem+json"])
        if example := examples().get(self.get_operation_id()):
            for code, body in bodies.items():
                if code.startswith("2") and "application/json" in body.get("content", {}):
                    body["content"]["application/json"]["example"] = example
        return bodies


@cache
def examples() -> dict[str, Any]:
    """Operation → an answer that it gave. Made, and held against what it answers now, by test_examples.py."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("examples.json").read_text())
    return found


@cache  # two lists of one thing have one page in the schema
def page_of(item: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    """The response of a list: {"data": [...], "next_cursor", "has_more"}."""
    name = item.__name__.removesuffix("Serializer")
    return inline_serializer(
        name=f"{name}Page",
        fields={
            "data": item(many=True),
            "next_cursor": serializers.CharField(allow_null=True),
            "has_more": serializers.BooleanField(),
        },
    )


PAGE_PARAMETERS = [
    OpenApiParameter("limit", OpenApiTypes.INT, description="1 to 200; 50 when left out"),
    OpenApiParameter("cursor", OpenApiTypes.STR, description="next_cursor of the page before"),
]
