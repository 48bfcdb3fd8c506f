"""What pydantic finds wrong with a document, in plain words: the field, its value and the way out."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_LONGEST_VALUE_SHOWN = 60
_MUST_BE = {
    "int_type": "must be a whole number", "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number", "int_parsing_size": "must be a smaller number",
    "float_type": "must be a number", "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false", "bool_parsing": "must be true or false",
    "string_type": "must be text (in YAML, put it in quotes)",
    "list_type": "must be a list", "tuple_type": "must be a list", "set_type": "must be a list",
    "dict_type": "must be a mapping of names to values", "mapping_type": "must be a mapping of names to values",
    "none_required": "must be left out",
}  # fmt: skip
_BOUNDS = {
    "greater_than": ("greater than", "gt"), "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"), "less_than_equal": ("at most", "le"),
    "multiple_of": ("a multiple of", "multiple_of"),
}  # fmt: skip
_SIZES = {
    "string_too_short": ("at least", "min_length", "character"),
    "string_too_long": ("at most", "max_length", "character"),
    "too_short": ("at least", "min_length", "entry"), "too_long": ("at most", "max_length", "entry"),
}  # fmt: skip


class SpecError(BaseModel):
    """One fault of a submitted document, as the API and the CLI show it."""

    pointer: str  # JSON pointer to the field, "/rollout/top_p"
    code: str
    message: str


def faults_of(error: ValidationError, model: type[BaseModel], *, prefix: str = "") -> list[SpecError]:
    """All faults that pydantic found in what would be a `model`; `prefix` goes before every pointer."""
    return [_fault_of(fault, model, prefix) for fault in error.errors(include_url=False)]


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing when no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f"; did you mean {near[0]!r}?" if near else ""


def shown(value: Any) -> str:
    """A value as it stands in a message: never longer than a line, and `true` rather than `True`."""
    text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else repr(value)
    text = "null" if value is None else str(text)
    return text if len(text) <= _LONGEST_VALUE_SHOWN else f"{text[:_LONGEST_VALUE_SHOWN]}…"


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
        return f"{_MUST_BE[kind]}; it is {shown(value)}"
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        bound = context[name]
        return f"must be {words} {f'{bound:g}' if isinstance(bound, float) else bound}; it is {shown(value)}"
    if kind in _SIZES:
        words, name, unit = _SIZES[kind]
        bound = int(context[name])
        units = unit if bound == 1 else {"character": "characters", "entry": "entries"}[unit]
        return f"must have {words} {bound} {units}; it has {len(value)}"
    if kind == "literal_error":
        near = nearest(value, _words(context["expected"])) if isinstance(value, str) else ""
        return f"must be one of {context['expected'].replace(' or ', ', ')}; it is {shown(value)}{near}"
    if kind in ("model_type", "model_attributes_type"):
        section = _model_at(model, fault["loc"])
        keys = ", ".join(list(section.model_fields)[:3]) if section is not None else ""
        return f"must be a mapping with keys such as {keys}; it is {shown(value)}"
    if kind == "string_pattern_mismatch":
        return f"must match {context['pattern']}; it is {shown(value)}"
    message = fault["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if isinstance(value, (dict, list)) or repr(value) in message or "; it is " in message:
        return message
    return f"{message}; it is {shown(value)}"


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
