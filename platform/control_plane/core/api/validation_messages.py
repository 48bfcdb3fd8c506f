"""What the fault of a field says: the framework's sentence, and after it the value, or what would have done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rest_framework import exceptions, fields, serializers

MOST_SHOWN = 60  # characters of a value
SIZES = {"max_length", "min_length", "max_string_length", "empty"}


def with_values(form: serializers.Serializer[Any], body: Any, faults: Any) -> Any:
    """The faults of a body, each with what stood in its field. A field of `secret_field` is never quoted."""
    if not isinstance(body, Mapping):
        return {name: _sentences(form, body, part) for name, part in faults.items()}
    return {name: _said(form.fields.get(name), body.get(name), part) for name, part in faults.items()}


def secret_field(**options: Any) -> serializers.CharField:
    """A text that no answer and no log repeats."""
    return serializers.CharField(write_only=True, **options)


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def _said(field: Any, value: Any, faults: Any) -> Any:
    if isinstance(field, serializers.Serializer):
        return faults  # it has said it itself
    if isinstance(faults, dict):
        return {name: _said(*_part(field, value, name), part) for name, part in faults.items()}
    return _sentences(field, value, faults)


def _sentences(field: Any, value: Any, faults: Any) -> list[Any]:
    return [
        exceptions.ErrorDetail(_sentence(field, value, fault), fault.code)
        if isinstance(fault, exceptions.ErrorDetail)
        else fault
        for fault in faults
    ]


def _part(field: Any, value: Any, name: Any) -> tuple[Any, Any]:
    """The field and the value that a fault under this name is about."""
    if name == "non_field_errors":
        return field, value
    child = getattr(field, "child", None)
    if isinstance(value, Mapping):
        return child, value.get(name)
    return child, value[name] if isinstance(value, Sequence) and isinstance(name, int) else None


def _sentence(field: Any, value: Any, fault: exceptions.ErrorDetail) -> str:
    message = str(fault)
    if fault.code == "required":
        return "required, and missing"
    if not isinstance(field, fields.Field) or fault.code in ("null", "blank", "unknown_key"):
        return message
    if isinstance(field, serializers.ChoiceField) and fault.code == "invalid_choice":
        return f"{shown(value)} is none of {', '.join(map(str, field.choices))}"
    if fault.code in SIZES:
        return f"{message} It has {len(value)}." if hasattr(value, "__len__") else message
    if field.write_only or (isinstance(value, str) and value in message):
        return message
    if isinstance(value, (dict, list)):
        if "but got" in message:
            return message
        return f"{message.removesuffix('.')}; it is {'a list' if isinstance(value, list) else 'an object'}"
    return f"{message.removesuffix('.')}; it is {shown(value)}"
