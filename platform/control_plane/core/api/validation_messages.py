"""What is wrong with a field of a request body, in plain words, with the value or what would have done.

The words are those of `oolong.contracts.error_words`, as in the errors of a RunSpec.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rest_framework import exceptions, fields, serializers

from oolong.contracts.error_words import MUST_BE, bound, must_be, nearest, size

_EXPECTED: dict[type[fields.Field[Any, Any, Any, Any]], str] = {
    fields.CharField: MUST_BE["text"],
    fields.BooleanField: MUST_BE["boolean"],
    fields.IntegerField: MUST_BE["integer"],
    fields.FloatField: MUST_BE["number"],
    fields.DecimalField: MUST_BE["number"],
    fields.DateTimeField: MUST_BE["time"],
    fields.ListField: MUST_BE["list"],
    fields.DictField: MUST_BE["object"],
    serializers.Serializer: MUST_BE["object"],
    serializers.ListSerializer: MUST_BE["list"],
}
# Codes of the framework that say that a value is not of the field's type.
_OF_TYPE = {
    "invalid", "not_a_list", "not_a_dict", "max_string_length", "overflow", "date", "make_aware",
}  # fmt: skip
_DIGITS = {"max_digits", "max_decimal_places", "max_whole_digits"}
_AT_LEAST, _AT_MOST = {"min_length", "empty"}, {"max_length"}
PLAIN = {
    *_OF_TYPE, *_DIGITS, *_AT_LEAST, *_AT_MOST, "required", "null", "blank", "invalid_choice", "min_value", "max_value",
}  # fmt: skip


def with_values(form: serializers.Serializer[Any], body: Any, faults: Any) -> Any:
    """The faults of a body, each with what stood in its field. A field of `secret_field` is never quoted."""
    if not isinstance(body, Mapping):
        return {name: _sentences(form, body, part) for name, part in faults.items()}
    return {name: _said(form.fields.get(name), body.get(name), part) for name, part in faults.items()}


def secret_field(**options: Any) -> serializers.CharField:
    """A text that no answer and no log repeats."""
    return serializers.CharField(write_only=True, **options)


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
    if fault.code == "required":
        return "required, and missing"
    if not isinstance(field, fields.Field):
        return str(fault)
    if _is_of_framework(field, fault) and (plain := _plain(field, value, str(fault.code))) is not None:
        return plain.partition("; it is ")[0] if field.write_only else plain
    message = str(fault)
    if field.write_only or (isinstance(value, str) and value in message) or "; it is " in message:
        return message
    if isinstance(value, (dict, list)):
        return f"{message.removesuffix('.')}; it is {'a list' if isinstance(value, list) else 'an object'}"
    return must_be(message.removesuffix("."), value)


def _is_of_framework(field: fields.Field[Any, Any, Any, Any], fault: exceptions.ErrorDetail) -> bool:
    """Whether the message is the framework's own, and not one that was written for this field."""
    templates = [
        str(messages[fault.code])
        for kind in type(field).__mro__
        if fault.code in (messages := getattr(kind, "default_error_messages", {}))
    ]
    return any(
        re.fullmatch(re.sub(r"\\\{\w+\\\}", ".*", re.escape(template)), str(fault), re.DOTALL)
        for template in templates
    )


def _plain(field: Any, value: Any, code: str) -> str | None:
    """The plain words for the framework's code; None for a code that has none."""
    expected = next((words for kind, words in _EXPECTED.items() if isinstance(field, kind)), None)
    unit = "character" if isinstance(field, fields.CharField) else "entry"
    match code:
        case _ if code in _DIGITS:
            before = field.max_digits - field.decimal_places
            return must_be(
                f"at most {before} digits before the point and {field.decimal_places} after it", value
            )
        case "null":
            return "must not be null; give a value" + ("" if field.required else ", or leave it out")
        case "blank":
            return "must not be empty" + ("" if field.required else "; leave it out, or give a text")
        case "invalid_choice":
            choices = [str(choice) for choice in field.choices]
            near = nearest(value, choices) if isinstance(value, str) else ""
            return must_be(f"must be one of {', '.join(choices)}", value) + near
        case "min_value":
            return bound("at least", field.min_value, value)
        case "max_value":
            return bound("at most", field.max_value, value)
        case "min_length" | "empty":
            return size("at least", getattr(field, "min_length", None) or 1, unit, value)
        case "max_length":
            return size("at most", field.max_length, unit, value)
        case "invalid" if isinstance(field, fields.RegexField) and isinstance(value, str):
            patterns = [getattr(validator, "regex", None) for validator in field.validators]
            return must_be(f"must match {next(regex.pattern for regex in patterns if regex)}", value)
    return must_be(expected, value) if code in _OF_TYPE and expected is not None else None
