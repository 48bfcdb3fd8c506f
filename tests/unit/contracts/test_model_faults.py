"""Errors of documents are in plain words: every type of error that a model of ours can raise, with the value."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, Field, ValidationError

from oolong.contracts import model_faults
from oolong.contracts.model_faults import faults_of
from oolong.contracts.run_spec import REWARD_OPTIONS, RunSpec, spec_errors
from oolong.presets import Preset

OF_PYDANTIC = re.compile(
    r"Input should|[Vv]alid dictionary|Field required|Extra inputs|should have at (least|most)|Value error"
    r"|valid (string|number|integer)"
)
SMALLEST: dict[str, Any] = {"name": "x", "model": {"base_model": "m"}, "dataset": {"version": "d@1"}}
WRONG: list[Any] = [
    "abc",
    "",
    1.5,
    -1,
    10**30,
    float("inf"),
    True,
    None,
    [],
    ["x"],
    [1],
    {},
    {"zzz": 1},
    "x" * 9999,
]

# The errors that pydantic raises for a kind of schema, and for its constraints.
RAISED = {
    "int": {"int_type", "int_parsing", "int_from_float", "int_parsing_size", "finite_number"},
    "float": {"float_type", "float_parsing", "finite_number"},
    "bool": {"bool_type", "bool_parsing"},
    "str": {"string_type", "string_unicode"},
    "literal": {"literal_error"}, "enum": {"enum"}, "dict": {"dict_type"}, "list": {"list_type"},
    "tuple": {"tuple_type", "missing", "too_short", "too_long"}, "set": {"set_type"},
    "model": {"model_type", "model_attributes_type"}, "model-fields": {"missing", "extra_forbidden"},
    "none": {"none_required"},
    "any": set(), "nullable": set(), "default": set(), "model-field": set(), "function-before": set(),
    "function-after": set(), "no-info": set(), "with-info": set(), "definitions": set(), "definition-ref": set(),
}  # fmt: skip
CONSTRAINTS = {
    "gt": "greater_than", "ge": "greater_than_equal", "lt": "less_than", "le": "less_than_equal",
    "multiple_of": "multiple_of", "pattern": "string_pattern_mismatch",
}  # fmt: skip


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        schema = schema.values()
    if isinstance(schema, (list, tuple, type({}.values()))):
        for part in schema:
            yield from nodes(part)


def errors_of(model: type[BaseModel]) -> set[str]:
    """The types of pydantic's errors that a document of this model can have."""
    found: set[str] = set()
    for node in nodes(model.__pydantic_core_schema__):
        kind = node.get("type")
        if not isinstance(kind, str) or node.keys() == {"type"} | {"path"}:
            continue
        assert kind in RAISED, f"say in RAISED which errors pydantic raises for {kind!r}"
        found |= RAISED[kind] | {CONSTRAINTS[name] for name in node if name in CONSTRAINTS}
        for length in node.keys() & {"min_length", "max_length"}:
            found.add({"min_length": "too_short", "max_length": "too_long"}[length] if kind != "str" else
                      {"min_length": "string_too_short", "max_length": "string_too_long"}[length])  # fmt: skip
    return found


@pytest.mark.parametrize(
    "model", [RunSpec, Preset, *REWARD_OPTIONS.values()], ids=lambda model: model.__name__
)
def test_every_error_that_a_model_can_raise_has_plain_words(model: type[BaseModel]) -> None:
    assert errors_of(model) <= model_faults.PLAIN
    assert errors_of(model) <= model_faults.OF_PYDANTIC, "these are pydantic's names"


def paths(
    schema: dict[str, Any], node: dict[str, Any], at: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    for name, child in node.get("properties", {}).items():
        yield (*at, name)
        for choice in (child, *child.get("anyOf", ())):
            if "$ref" in choice:
                yield from paths(schema, schema["$defs"][choice["$ref"].rsplit("/", 1)[1]], (*at, name))


def test_no_wrong_value_of_any_field_is_answered_with_a_sentence_of_pydantic() -> None:
    schema = RunSpec.model_json_schema()
    seen = 0
    for path in paths(schema, schema):
        for value in WRONG:
            document = copy.deepcopy(SMALLEST)
            section = document
            for name in path[:-1]:
                section = section.setdefault(name, {})
            section[path[-1]] = value
            for error in spec_errors(document):
                seen += 1
                assert not OF_PYDANTIC.search(error.message), (path, value, error.message)
                assert (error.message and error.message[0].islower()) or error.message[0] in "'‘", (
                    error.message
                )
                if error.message.startswith("must be") and value is not None:
                    assert "; it is " in error.message, (path, value, error.message)
    assert seen > 1000


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (int, "x", "must be a whole number; it is 'x'"),
        (int, 1.5, "must be a whole number; it is 1.5"),
        (float, [], "must be a number; it is []"),
        (bool, "maybe", "must be true or false; it is 'maybe'"),
        (str, 3, "must be text (in YAML, put it in quotes); it is 3"),
        (list[int], "x", "must be a list; it is 'x'"),
        (dict[str, int], 4, "must be a mapping of names to values; it is 4"),
        (None, 4, "must be left out; it is 4"),
    ],
)
def test_a_value_of_another_type_is_quoted_with_what_is_expected(kind: Any, value: Any, message: str) -> None:
    class Model(BaseModel):
        field: kind

    with pytest.raises(ValidationError) as caught:
        Model.model_validate({"field": value})
    [fault] = faults_of(caught.value, Model)
    assert (fault.pointer, fault.message) == ("/field", message)


def test_a_type_of_error_without_words_here_does_not_show_those_of_pydantic() -> None:
    class Model(BaseModel):
        at: bytes = Field(default=b"")

    with pytest.raises(ValidationError) as caught:
        Model.model_validate({"at": 3})
    [fault] = faults_of(caught.value, Model)
    assert fault.message == "cannot be read here, see the reference; it is 3"


def test_the_words_of_our_own_rules_stay() -> None:
    def refuse(value: int) -> int:
        raise ValueError("seven is enough")

    class Model(BaseModel):
        field: Annotated[int, AfterValidator(refuse)]

    with pytest.raises(ValidationError) as caught:
        Model.model_validate({"field": 8})
    assert faults_of(caught.value, Model)[0].message == "seven is enough; it is 8"
