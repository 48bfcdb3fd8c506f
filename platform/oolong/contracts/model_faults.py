"""What pydantic finds wrong with a document, in plain words: the field, its value and the way out."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from oolong.contracts.error_words import MUST_BE, BoundWords, bound, must_be, nearest, size

_MUST_BE = {
    "int_type": MUST_BE["integer"], "int_parsing": MUST_BE["integer"], "int_from_float": MUST_BE["integer"],
    "int_parsing_size": "must be a smaller number",
    "float_type": MUST_BE["number"], "float_parsing": MUST_BE["number"],
    "finite_number": "must be a finite number",
    "bool_type": MUST_BE["boolean"], "bool_parsing": MUST_BE["boolean"],
    "string_type": f"{MUST_BE['text']} (in YAML, put it in quotes)",
    "string_unicode": "must be text that UTF-8 can hold",
    "list_type": MUST_BE["list"], "tuple_type": MUST_BE["list"], "set_type": MUST_BE["list"],
    "frozen_set_type": MUST_BE["list"], "iterable_type": MUST_BE["list"],
    "dict_type": "must be a mapping of names to values", "mapping_type": "must be a mapping of names to values",
    "none_required": "must be left out",
}  # fmt: skip
_BOUNDS: dict[str, tuple[BoundWords, str]] = {
    "greater_than": ("greater than", "gt"), "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"), "less_than_equal": ("at most", "le"),
    "multiple_of": ("a multiple of", "multiple_of"),
}  # fmt: skip
_SIZES: dict[str, tuple[BoundWords, str, str]] = {
    "string_too_short": ("at least", "min_length", "character"),
    "string_too_long": ("at most", "max_length", "character"),
    "too_short": ("at least", "min_length", "entry"), "too_long": ("at most", "max_length", "entry"),
}  # fmt: skip
_CHOICES = ("literal_error", "enum")
_SECTIONS = ("model_type", "model_attributes_type")
_OWN_WORDS = ("value_error", "assertion_error")  # a validator of ours wrote the message
OF_PYDANTIC = frozenset(typing.get_args(ErrorType))
# The types of pydantic that have plain words here. tests/unit/contracts/test_model_faults.py finds one without.
PLAIN = frozenset(
    {"missing", "extra_forbidden", "string_pattern_mismatch"}
    | {*_MUST_BE, *_BOUNDS, *_SIZES, *_CHOICES, *_SECTIONS, *_OWN_WORDS}
)


class SpecError(BaseModel):
    """One fault of a submitted document, as the API and the CLI show it."""

    pointer: str  # JSON pointer to the field, "/rollout/top_p"
    code: str
    message: str


def faults_of(error: ValidationError, model: type[BaseModel], *, prefix: str = "") -> list[SpecError]:
    """All faults that pydantic found in what would be a `model`; `prefix` goes before every pointer."""
    return [_fault_of(fault, model, prefix) for fault in error.errors(include_url=False)]


def non_finite(value: Any, path: tuple[str | int, ...] = ()) -> tuple[str | int, ...] | None:
    """Where a JSON-like value holds NaN or an infinity, which JSON does not have; None when nowhere."""
    match value:
        case float() if value - value != 0:
            return path
        case dict():
            items: Iterable[tuple[Any, Any]] = value.items()
        case list() | tuple():
            items = enumerate(value)
        case _:
            return None
    return next(
        (found for name, item in items if (found := non_finite(item, (*path, name))) is not None), None
    )


def _fault_of(fault: ErrorDetails, model: type[BaseModel], prefix: str) -> SpecError:
    kind, context = fault["type"], fault.get("ctx", {})
    path = (*fault["loc"], *context.get("path", ()))
    pointer = prefix + "".join(f"/{pointer_part(str(part))}" for part in path)
    if kind == "extra_forbidden":
        section, name = _model_at(model, fault["loc"][:-1]), str(fault["loc"][-1])
        known = ", ".join(section.model_fields) if section is not None else "see the reference"
        near = nearest(name, section.model_fields if section is not None else ())
        return SpecError(
            pointer=pointer, code="unknown_key", message=f"unknown key {name!r}{near or f'; known: {known}'}"
        )
    return SpecError(pointer=pointer, code=kind, message=_sentence(fault, model))


def _sentence(fault: ErrorDetails, model: type[BaseModel]) -> str:
    kind, value, context = fault["type"], fault["input"], fault.get("ctx", {})
    if kind == "missing":
        return "required, and missing"
    if kind in _MUST_BE:
        return must_be(_MUST_BE[kind], value)
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        return bound(words, context[name], value)
    if kind in _SIZES:
        words, name, unit = _SIZES[kind]
        return size(words, int(context[name]), unit, value)
    if kind in _CHOICES:
        near = nearest(value, _words(context["expected"])) if isinstance(value, str) else ""
        return must_be(f"must be one of {context['expected'].replace(' or ', ', ')}", value) + near
    if kind in _SECTIONS:
        section = _model_at(model, fault["loc"])
        keys = ", ".join(list(section.model_fields)[:3]) if section is not None else ""
        return must_be(f"must be a mapping with keys such as {keys}", value)
    if kind == "string_pattern_mismatch":
        return must_be(f"must match {context['pattern']}", value)
    if kind in OF_PYDANTIC and kind not in _OWN_WORDS:
        return must_be("cannot be read here, see the reference", value)
    message = fault["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if isinstance(value, (dict, list)) or repr(value) in message or "; it is " in message:
        return message
    return must_be(message, value)


def _words(expected: str) -> list[str]:
    return [word.strip(" '") for word in expected.replace(" or ", ",").split(",")]


def _model_at(model: type[BaseModel] | None, path: Iterable[str | int]) -> type[BaseModel] | None:
    """The section that a path leads to; None where the path leaves the models."""
    for name in path:
        if isinstance(name, int) or model is None:
            continue  # an entry of a list of sections
        field = model.model_fields.get(name)
        model = _model_in(field.annotation) if field is not None else None
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in typing.get_args(annotation) if (found := _model_in(part))), None)


def pointer_part(part: str) -> str:
    """A key as it stands between the slashes of a JSON pointer (RFC 6901)."""
    return part.replace("~", "~0").replace("/", "~1")
