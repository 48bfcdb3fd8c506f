"""Statistics of columns: exact on small data, bounded on large data, and true of odd values."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from control_plane.assets.background.token_statistics import columns
from control_plane.assets.background.token_statistics.columns import measure_columns, number_of, text_of


def lines(*rows: dict[str, Any]) -> list[bytes]:
    plain = {
        "split": "train",
        "messages": [{"role": "user", "content": "q"}],
        "completion": None,
        "source": "",
    }
    return [json.dumps({**plain, "row": number, **row}).encode() for number, row in enumerate(rows)]


def measured(*rows: dict[str, Any]) -> dict[str, columns.ColumnStatistics]:
    return {column.name: column for column in measure_columns(lines(*rows))}


def test_lengths_count_characters_and_not_bytes() -> None:
    found = measured({"answer": "日本"}, {"answer": "é"}, {"answer": "🙂🙂🙂🙂"})["answer"]
    assert (found.shortest, found.median, found.longest) == (1, 2, 4)
    assert found.mean == pytest.approx(7 / 3)


def test_missing_values_are_counted_and_have_no_length() -> None:
    found = measured({"answer": "", "completion": None}, {"answer": "ab", "completion": "x"})
    assert (found["answer"].rows, found["answer"].missing, found["answer"].shortest) == (2, 1, 2)
    assert (found["completion"].missing, found["completion"].distinct) == (1, 1)
    assert "source" not in found  # no row has one


def test_messages_are_their_contents_and_other_nested_values_are_json() -> None:
    turns = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "why?"}]
    assert text_of(turns) == "be brief\nwhy?"
    assert text_of([{"type": "image"}]) == '[{"type":"image"}]'
    assert (text_of({"b": None}), text_of(None), text_of(3), text_of([])) == ('{"b":null}', "", "3", "[]")
    assert measured({"answer": "1", "messages": turns})["messages"].longest == 13


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7.0), ("-0.5", -0.5), (" 1e3 ", 1000.0), (".5", 0.5), ("nan", None), ("inf", None), ("1e999", None),
     ("1_000", None), ("12 apples", None), ("9" * 500, None)],
)  # fmt: skip
def test_only_finite_numbers_are_numbers(text: str, number: float | None) -> None:
    assert number_of(text) == number


def test_the_numeric_range_is_of_the_numbers_alone() -> None:
    found = measured({"answer": "3"}, {"answer": "-2"}, {"answer": "many"})["answer"]
    assert (found.numeric, found.minimum, found.maximum) == (2, -2.0, 3.0)
    words = measured({"answer": "many"})["answer"]
    assert (words.numeric, words.minimum, words.maximum) == (0, None, None)


def test_frequent_values_come_first_cut_and_without_nul() -> None:
    found = measured(*[{"answer": "b"}] * 3, {"answer": "a" * 500}, {"answer": "\0"})["answer"]
    assert [(one.value, one.rows) for one in found.frequent] == [("b", 3), ("a" * 200, 1), ("\ufffd", 1)]
    assert (found.distinct, found.distinct_exact, found.frequent_exact) == (3, True, True)


def test_long_values_that_begin_alike_are_distinct() -> None:
    found = measured(*({"answer": "x" * 300 + str(n)} for n in range(5)))["answer"]
    assert (found.distinct, len(found.frequent)) == (5, 5)


def test_many_rows_are_measured_within_the_bounds_that_the_module_states() -> None:
    """20,000 distinct prompts, and one answer in half of the rows: the memory is the same for a million."""

    def rows() -> Iterator[bytes]:
        for number in range(20_000):
            message = [{"role": "user", "content": f"question {number}"}]
            answer = "yes" if number % 2 else str(number)
            yield json.dumps({"split": "train", "messages": message, "answer": answer}).encode()

    tracemalloc.start()
    try:
        found = {column.name: column for column in measure_columns(rows())}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 1024 * 1024
    prompts, answers = found["messages"], found["answer"]
    assert not prompts.distinct_exact and prompts.distinct == pytest.approx(20_000, rel=0.08)
    assert prompts.frequent == []  # nothing repeats, and a count of one is no finding
    assert answers.frequent[0].value == "yes" and not answers.frequent_exact
    assert 10_000 - 20_000 / columns.KEPT_VALUES <= answers.frequent[0].rows <= 10_000
    assert found["split"].frequent[0].rows == 20_000


def test_a_version_without_rows_has_no_columns() -> None:
    assert measure_columns([]) == []
