"""How views describe themselves in the OpenAPI document (drf-spectacular)."""

from __future__ import annotations

import inspect
import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import force_instance
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, inline_serializer
from rest_framework import serializers
from rest_framework.permissions import AllowAny

from control_plane.core.api import schema_messages  # noqa: F401  # drf-spectacular finds it once it is imported
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer
from control_plane.core.security.rate_limits import request_cost
from oolong.contracts.lifecycle import RunStatus
from oolong.contracts.user_code import SourceKind

# Choices that more than one serializer shows, named once for the schema.
RUN_STATUSES = [str(status) for status in RunStatus]
ROLES = ["viewer", "editor", "operator", "admin"]  # accounts.models.Role
GOALS = ["max", "min"]
RUN_KINDS = ["rl", "sft", "dpo", "eval", "reward_test", "playground"]
CHECKPOINT_KINDS = ["training", "weights"]
CHECKPOINT_CONTENTS = ["model", "adapter"]
MODEL_KINDS = ["base_model", "checkpoint"]
INVITATION_STATUSES = ["open", "accepted", "revoked", "expired"]
SOURCE_KINDS = [str(kind) for kind in SourceKind]
NODE_STATUSES = [
    "READY", "UNRESPONSIVE", "CORDONED", "QUARANTINED", "DRAINING", "DRAINED", "LOST", "REVOKED",
]  # fmt: skip


LONGEST_IDEMPOTENCY_KEY = 255


class FieldErrorSerializer(ResponseSerializer):
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
    "Idempotency-Key", {"type": "string", "maxLength": LONGEST_IDEMPOTENCY_KEY}, OpenApiParameter.HEADER,
    description="makes the call safe to repeat: the same key and body get the first answer again, for 24 hours",
)  # fmt: skip
_IF_MATCH = OpenApiParameter(
    "If-Match", OpenApiTypes.STR, OpenApiParameter.HEADER,
    description="the ETag that a GET of this address gave; when it is another now, the answer is 412",
)  # fmt: skip


NONEMPTY = {"type": "string", "minLength": 1}
SHA256 = {"type": "string", "pattern": "^[0-9A-Fa-f]{64}$"}
PART_SHA256 = OpenApiParameter(
    "X-Part-SHA256", SHA256, OpenApiParameter.HEADER, required=True, description="of the bytes of this part"
)

# What may be answered, besides what the operation names itself: a status, why, and headers.
_RATE_HEADERS = {
    "RateLimit": {"description": "units that are left, and seconds until the budget is whole again"},
    "RateLimit-Policy": {"description": "whose budget it is, units and seconds"},
}
PROBLEMS = {
    "400": ("MalformedRequest", "The body is no JSON, or the address has a NUL character."),
    "401": ("NotAuthenticated", "No credential, or one that is unknown, expired or revoked."),
    "403": ("NotPermitted", "The caller lacks a scope or role, or a browser sent no CSRF token."),
    "404": ("NotFound", "It does not exist, or the caller may not see it."),
    "409": ("Conflict", "The state of the object does not allow it; `code` says what is in the way."),
    "412": ("PreconditionFailed", "If-Match names a state that is over. Read it again and use its ETag."),
    "413": ("TooLarge", "The body is over its limit."),
    "415": ("UnsupportedMediaType", "The body has a content type that is not taken here."),
    "422": ("Invalid", "A field or parameter is missing, unknown or out of bounds; `errors` points to it."),
    "429": ("RateLimited", "The budget of this minute is used up. Wait as long as Retry-After says."),
}


class ProblemAwareSchema(AutoSchema):
    """Documents what every operation has in common: problem documents, rate-limit weights, headers and examples.

    An operation's own words are the docstring of its method: the first line is the summary, the rest the description.
    """

    def get_summary(self) -> str | None:
        return (inspect.getdoc(self._handler()) or "").partition("\n")[0].rstrip(".") or None

    def get_description(self) -> str:  # type: ignore[override]  # as drf-spectacular calls it
        text = (inspect.getdoc(self._handler()) or "").partition("\n")[2].strip()
        units = request_cost(self.method, self.path)
        weight = (
            f"Costs {units} unit{'' if units == 1 else 's'} of the rate limit."
            if units
            else "Free of charge."
        )
        return f"{' '.join(text.split())}\n\n{weight}".strip()

    def get_operation(self, *arguments: Any, **options: Any) -> dict[str, Any] | None:
        operation = super().get_operation(*arguments, **options)
        if operation is None:
            return None
        operation["x-rate-limit-units"] = request_cost(self.method, self.path)
        for status in self._problems(has_body="requestBody" in operation):
            operation["responses"].setdefault(
                status, {"$ref": f"#/components/responses/{PROBLEMS[status][0]}"}
            )
        operation["responses"] = dict(sorted(operation["responses"].items()))
        name = operation["operationId"]
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is not None and name in example_requests():
            content["example"] = example_requests()[name]
        if content is not None and self._needs_a_body():
            operation["requestBody"]["required"] = True
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "path" and parameter["name"] in example_ids():
                parameter["example"] = example_ids()[parameter["name"]]
        return operation

    def _problems(self, *, has_body: bool) -> list[str]:
        """The statuses of the problems that the operation may answer with."""
        changes = self.method not in ("GET", "HEAD")
        is_open = AllowAny in self.view.permission_classes and not self.view.authentication_classes
        found = ["422"]  # an unknown parameter, at least
        found += [] if is_open else ["401", "403", "404"]
        found += ["404"] if "{" in self.path else []
        found += ["400", "409", "413"] if changes else []
        found += ["415"] if has_body else []
        found += ["412"] if getattr(self._handler(), "conditional", False) else []
        found += ["429"] if request_cost(self.method, self.path) else []
        return sorted(set(found))

    def _needs_a_body(self) -> bool:
        form = force_instance(self.get_request_serializer())
        if isinstance(form, StrictSerializer):
            return form.not_empty
        return isinstance(form, type) and issubclass(form, msgspec.Struct)

    def _map_serializer(self, serializer: Any, direction: Any, bypass_extensions: bool = False) -> Any:
        schema = super()._map_serializer(serializer, direction, bypass_extensions)
        form = force_instance(serializer)
        if not type(form).__doc__:
            schema.pop("description", None)  # that of the base class
        return {**schema, **form.rules()} if isinstance(form, StrictSerializer) else schema

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
        for code, body in bodies.items():
            if code.startswith("2") and "application/json" in body.get("content", {}):
                example = examples().get(self.get_operation_id())
                if example is not None:
                    body["content"]["application/json"]["example"] = example
        return bodies


def add_problem_responses(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Postprocessing: the responses that operations refer to, written once."""
    responses: dict[str, Any] = {}
    for status, (name, description) in PROBLEMS.items():
        headers: dict[str, Any] = {
            header: {**said, "schema": {"type": "string"}}
            for header, said in _RATE_HEADERS.items()
            if status == "429"
        }
        if status == "429":
            headers["Retry-After"] = {
                "description": "seconds to wait", "required": True, "schema": {"type": "integer", "minimum": 1},
            }  # fmt: skip
        responses[name] = {
            "description": description,
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            **({"headers": headers} if headers else {}),
        }
    result["components"]["responses"] = responses
    return result


@cache
def _example_answers() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("examples.json").read_text())
    return found


def examples() -> dict[str, Any]:
    """Operation → an answer that it gave. Made, and held against what it answers now, by test_examples.py."""
    found: dict[str, Any] = _example_answers()["answers"]
    return found


def example_ids() -> dict[str, str]:
    """Placeholder of a path → an id, that of the answers."""
    found: dict[str, str] = _example_answers()["ids"]
    return found


@cache
def example_requests() -> dict[str, Any]:
    """Operation → a body that it takes. `{run_id}` in a text is the id of the examples."""
    text = Path(__file__).with_name("example_requests.json").read_text()
    found: dict[str, Any] = json.loads(
        re.sub(r"\{(\w+)\}", lambda place: example_ids().get(place[1], place[0]), text)
    )
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
