"""How request bodies are read: JSON that PostgreSQL can keep, and objects without keys that nobody knows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, ClassVar

from rest_framework import exceptions, serializers
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.api.validation_messages import with_values
from oolong.contracts.error_words import MUST_BE, must_be

DEEPEST = 64  # levels of a body; a spec has five


class StrictJSONParser(JSONParser):
    """JSON as the standard has it (no NaN, no number too large to be one), at most so deep, and without NUL characters
    and half surrogates, which no text column keeps."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        try:
            document = json.loads(
                stream.read().decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite
            )
        except (ValueError, RecursionError) as error:
            raise exceptions.ParseError(f"the body is not JSON: {error}") from error
        _refuse_unkeepable(document, depth=0)
        return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    """`1e999` is JSON and would become infinity, which is not."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is larger than any number that is kept")
    return number


def _refuse_unkeepable(value: Any, *, depth: int) -> None:
    if depth > DEEPEST:
        raise exceptions.ParseError(f"the body is deeper than {DEEPEST} levels")
    if isinstance(value, str):
        if "\x00" in value:
            raise exceptions.ParseError(f"the body has a NUL character in {value[:40]!r}")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise exceptions.ParseError(f"the body has half a character in {value[:40]!r}") from error
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_unkeepable(key, depth=depth + 1)
            _refuse_unkeepable(item, depth=depth + 1)
    elif isinstance(value, list):
        for item in value:
            _refuse_unkeepable(item, depth=depth + 1)


def name_field(pattern: str, words: str, *, max_length: int, required: bool = True) -> serializers.RegexField:
    """A name that is to match a pattern; a refusal shows the name and says the pattern in `words`."""
    refusal = f"'%(value)s' is no name here: {words}"
    return serializers.RegexField(
        pattern, max_length=max_length, required=required, error_messages={"invalid": refusal}
    )


def reject_unknown_keys(document: Mapping[str, Any], known: Iterable[str]) -> None:
    names = list(known)
    if unknown := sorted(set(map(str, document)) - set(names)):
        there = f"known: {', '.join(names) or 'none'}"
        raise serializers.ValidationError(
            {
                name: [exceptions.ErrorDetail(f"unknown key {name!r}; {there}", "unknown_key")]
                for name in unknown
            }
        )


def no_body(view: Callable[..., Response]) -> Callable[..., Response]:
    """Decorate a POST handler whose address says it all: what a body asks for would be passed over in silence."""

    @wraps(view)
    def wrapped(self: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
        if isinstance(request.data, dict):
            reject_unknown_keys(request.data, ())
        elif request.data:
            raise serializers.ValidationError("this address takes no body")
        return view(self, request, *args, **kwargs)

    return wrapped


class StrictSerializer(serializers.Serializer[Any]):
    """A request body: a key that is not in it is a mistake of the caller, and said so.

    What a body needs besides its required fields is declared here, so that the OpenAPI document says it too.
    """

    not_empty: ClassVar[bool] = False  # a change names at least one field
    one_of: ClassVar[tuple[str, ...]] = ()  # exactly one of these fields
    any_of: ClassVar[tuple[tuple[str, ...], ...]] = ()  # all fields of at least one of these groups
    default_error_messages = {"null": must_be(MUST_BE["object"], None)}

    @classmethod
    def rules(cls) -> dict[str, Any]:
        """As keywords of JSON Schema."""
        rules: dict[str, Any] = {"additionalProperties": False}
        if cls.not_empty:
            rules["minProperties"] = 1
        if cls.one_of:
            rules["oneOf"] = [{"required": [name]} for name in cls.one_of]
        if cls.any_of:
            rules["anyOf"] = [{"required": list(group)} for group in cls.any_of]
        return rules

    def to_internal_value(self, data: Any) -> Any:
        missing: dict[str, Any] = {}
        if isinstance(data, dict):
            reject_unknown_keys(data, self.fields)
            missing = self._missing(set(data))
        try:
            value = super().to_internal_value(data)
        except serializers.ValidationError as error:
            detail = with_values(self, data, error.detail)
            raise serializers.ValidationError(
                {**missing, **detail} if isinstance(detail, dict) else detail
            ) from error
        if missing:
            raise serializers.ValidationError(missing)
        return value

    def _missing(self, given: set[str]) -> dict[str, Any]:
        """The error for fields that the rules of this body ask for together, by its field; empty if they are there."""
        field, code, message = "non_field_errors", "", ""
        if self.not_empty and not given:
            code, message = "nothing_to_change", f"nothing to change: give {_words(self.fields)}"
        elif self.one_of and len(both := sorted(given & set(self.one_of))) != 1:
            named = f", not {' and '.join(both)}" if both else ""
            field, code, message = (
                self.one_of[0],
                "one_of",
                f"give exactly one of {_words(self.one_of)}{named}",
            )
        elif self.any_of and not any(set(group) <= given for group in self.any_of):
            code, message = "any_of", f"give {_words([' and '.join(group) for group in self.any_of])}"
        return {field: [exceptions.ErrorDetail(message, code)]} if code else {}


def _words(names: Iterable[str]) -> str:
    """`name, query or shared`."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def body_of(form: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """The validated request body. 422 with a pointer to each invalid field."""
    filled = form(data=request.data)
    filled.is_valid(raise_exception=True)
    fields: dict[str, Any] = filled.validated_data
    return fields
