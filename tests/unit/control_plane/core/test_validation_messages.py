"""Errors of request bodies are in plain words, with the value, for every field of every body that the API takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import get_resolver
from rest_framework import exceptions, fields, serializers

from control_plane.core.api.request_parsing import StrictSerializer
from control_plane.core.api.validation_messages import PLAIN
from control_plane.experiments.sweeps import SweepPlan
from oolong.contracts import model_faults
from tests.unit.contracts.test_model_faults import errors_of

OF_FRAMEWORK = re.compile(
    r"Ensure this|valid (integer|number|string|boolean|choice)|may not be|Expected a|This field|No data|wrong format"
    r"|Invalid data|required pattern|list may not|too large"
)
WRONG: list[Any] = [
    None, "", "abc", -1, 0, 1.5, 10**30, "9" * 2000, True, [], [None], [1.5], ["x" * 3000], {}, {"zzz": None},
    "x" * 50_000, ["y"] * 5000,
]  # fmt: skip
# Codes that these fields cannot raise here, because no field is configured so.
NOT_RAISED = {"input", "no_name", "surrogate_characters_not_allowed", "invalid_choice_list"}


def bodies() -> list[type[StrictSerializer]]:
    assert get_resolver().url_patterns  # loads the views, and with them every body

    def below(kind: type[StrictSerializer]) -> Iterator[type[StrictSerializer]]:
        for child in kind.__subclasses__():
            yield child
            yield from below(child)

    return sorted(set(below(StrictSerializer)), key=lambda kind: (kind.__module__, kind.__qualname__))


def sentences(detail: Any) -> Iterator[exceptions.ErrorDetail]:
    if isinstance(detail, exceptions.ErrorDetail):
        yield detail
    elif isinstance(detail, (dict, list)):
        for part in detail.values() if isinstance(detail, dict) else detail:
            yield from sentences(part)


def errors_for(form: type[StrictSerializer], body: Any) -> list[exceptions.ErrorDetail]:
    try:
        form().run_validation(body)
    except serializers.ValidationError as error:
        return list(sentences(error.detail))
    return []


def test_no_wrong_value_of_any_body_is_answered_with_a_sentence_of_the_framework() -> None:
    seen = 0
    for form in bodies():
        for name, field in form().fields.items():
            for value in WRONG:
                for error in errors_for(form, {name: value}):
                    seen += 1
                    assert not OF_FRAMEWORK.search(error), (form.__qualname__, name, value, str(error))
                    if field.write_only and isinstance(value, str) and len(value) > 2:
                        assert value[:40] not in error, "a secret is never quoted"
        for body in (None, [], "abc", 3):
            for error in errors_for(form, body):
                assert not OF_FRAMEWORK.search(error), (form.__qualname__, body, str(error))
    assert seen > 1000


def test_every_code_of_the_kinds_of_fields_in_use_has_plain_words() -> None:
    def parts(field: Any) -> Iterator[fields.Field[Any, Any, Any, Any]]:
        yield field
        if (child := getattr(field, "child", None)) is not None:
            yield from parts(child)

    used = {type(part) for form in bodies() for field in form().fields.values() for part in parts(field)}
    codes = {code for kind in used for code in getattr(kind, "default_error_messages", {})}
    left = {code for code in codes - PLAIN - NOT_RAISED if not code.startswith("incorrect")}
    assert len(used) > 5 and left <= {"not_a_list"}, f"give {left} plain words in validation_messages"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (serializers.CharField(), ["x"], "must be text; it is ['x']"),
        (serializers.CharField(max_length=3), "abcd", "must have at most 3 characters; it has 4"),
        (serializers.CharField(required=False), "", "must not be empty; leave it out, or give a text"),
        (serializers.CharField(), None, "must not be null; give a value"),
        (serializers.IntegerField(), "x", "must be a whole number; it is 'x'"),
        (serializers.IntegerField(max_value=5), 6, "must be at most 5; it is 6"),
        (serializers.FloatField(min_value=0), -1, "must be at least 0; it is -1"),
        (serializers.BooleanField(), "maybe", "must be true or false; it is 'maybe'"),
        (serializers.DateTimeField(), "soon", "must be a time such as 2026-01-31T12:00:00Z; it is 'soon'"),
        (serializers.DictField(), "x", "must be an object; it is 'x'"),
        (serializers.ListField(), "x", "must be a list; it is 'x'"),
        (serializers.ListField(max_length=1), [1, 2], "must have at most 1 entry; it has 2"),
        (serializers.ListField(allow_empty=False), [], "must have at least 1 entry; it has 0"),
        (serializers.ListField(child=serializers.IntegerField()), ["x"], "must be a whole number; it is 'x'"),
        (serializers.RegexField(r"^a+$"), "b", "must match ^a+$; it is 'b'"),
        (serializers.ChoiceField(["dataset", "model"]), "modle",
         "must be one of dataset, model; it is 'modle'; did you mean 'model'?"),
        (serializers.CharField(write_only=True, max_length=2), "abc", "must have at most 2 characters; it has 3"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_quoted_with_what_is_expected(field: Any, value: Any, message: str) -> None:
    form = type("Form", (StrictSerializer,), {"field": field})
    assert errors_for(form, {"field": value}) == [message]


def test_a_message_that_was_written_for_a_field_stays() -> None:
    class Form(StrictSerializer):
        name = serializers.RegexField(r"^a+$", error_messages={"invalid": "a name is the letter a"})

        def validate_name(self, value: str) -> str:
            raise serializers.ValidationError("this name is taken")

    assert errors_for(Form, {"name": "b"}) == ["a name is the letter a; it is 'b'"]
    assert errors_for(Form, {"name": "aaa"}) == ["this name is taken; it is 'aaa'"]


def test_every_error_of_a_sweep_has_plain_words() -> None:
    assert errors_of(SweepPlan) <= model_faults.PLAIN
