"""Binary columns reach PostgreSQL as the values they were made of."""

from __future__ import annotations

import math

import pytest
from django.db import DataError, transaction

from control_plane.core.infra.pg_arrays import Float8Array, Int8Array, TextArray, execute

pytestmark = pytest.mark.django_db


def test_every_kind_of_value_arrives_as_it_is() -> None:
    numbers, floats = [0, -1, 2**63 - 1, -(2**63)], [0.0, -1.5, math.inf, 5e-324]
    texts = ["", "plain", 'quote " and \\', "ünï✓"]
    [row] = execute(
        "SELECT %(numbers)s, %(floats)s, %(texts)s",
        {
            "numbers": Int8Array(numbers),
            "floats": Float8Array(floats),
            "texts": TextArray([t.encode() for t in texts]),
        },
    ).fetchall()
    assert row == (numbers, floats, texts)
    [[nan]] = execute("SELECT (%(x)s)[1]", {"x": Float8Array([math.nan])}).fetchall()
    assert math.isnan(nan)


def test_an_empty_column_is_an_empty_array() -> None:
    [row] = execute("SELECT %(a)s, %(b)s", {"a": Int8Array([]), "b": TextArray([])}).fetchall()
    assert row == ([], [])


def test_what_the_database_refuses_is_an_error_of_django() -> None:
    with pytest.raises(DataError), transaction.atomic():
        execute("SELECT %(a)s", {"a": TextArray([b"\xff"])})
