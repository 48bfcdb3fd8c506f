"""Columns of preference pairs: what is accepted, what is refused by row and column, and what is counted."""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import pytest

from control_plane.assets.background.dataset_ingest.survey import ColumnProfiler
from control_plane.assets.background.token_statistics import lengths
from control_plane.assets.datasets import rows
from control_plane.assets.datasets.rows import DecodedRow, Mapping, Written
from oolong.contracts.attempt import CanonicalRow

MAPPING = Mapping(prompt_column="q", chosen_column="good", rejected_column="bad", split_column="s")


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def system(text: str) -> dict[str, str]:
    return {"role": "system", "content": text}


def written(
    *given: dict[str, Any], mapping: Mapping = MAPPING, survey: ColumnProfiler | None = None
) -> tuple[Written, list[CanonicalRow]]:
    target = io.BytesIO()
    source = [DecodedRow(line, json.dumps(row).encode()) for line, row in enumerate(given, start=1)]
    found = rows.write_canonical(source, mapping, target, seen=survey.see if survey is not None else None)
    return found, [msgspec.json.decode(line, type=CanonicalRow) for line in target.getvalue().splitlines()]


def test_texts_become_one_message_of_the_assistant() -> None:
    found, [row] = written({"q": "1+1", "good": "2", "bad": "3", "s": "eval"})
    assert (row.chosen, row.rejected, row.answer) == ([assistant("2")], [assistant("3")], "")
    assert row.messages == [user("1+1")]
    assert dict(found.with_pair) == {"eval": 1}


@pytest.mark.parametrize("repeats_the_prompt", [False, True])
def test_prompt_and_completions_may_be_conversations(repeats_the_prompt: bool) -> None:
    prompt = [user("1+1"), assistant("2"), user("and 2+2?")]
    start = prompt if repeats_the_prompt else []
    good, bad = [assistant("4"), user("sure?"), assistant("yes")], [assistant("5")]
    _, [row] = written({"q": prompt, "good": [*start, *good], "bad": [*start, *bad]})
    assert (row.messages, row.chosen, row.rejected) == (prompt, good, bad)


def test_a_prompts_own_system_message_comes_before_the_mappings() -> None:
    mapping = Mapping(prompt_column="q", chosen_column="good", rejected_column="bad", system="Add.")
    _, [own, given] = written(
        {"q": [system("Be short."), user("1+1")], "good": [user("1+1"), assistant("2")], "bad": "3"},
        {"q": [user("1+1")], "good": [user("1+1"), assistant("2")], "bad": "3"},
        mapping=mapping,
    )
    assert (own.messages[0], given.messages[0]) == (system("Be short."), system("Add."))
    assert own.chosen == given.chosen == [assistant("2")]


@pytest.mark.parametrize(
    ("row", "column", "code", "says"),
    [
        ({"q": "1", "good": "2"}, "bad", "half_pair", "column 'bad' has no value and 'good' has one"),
        ({"q": "1", "good": None, "bad": "3"}, "good", "half_pair", "a pair needs both"),
        ({"q": "1", "better": "2"}, "good", "no_pair", "the row has 'q', 'better'"),
        ({"q": "1", "good": "2", "bad": "2"}, "bad", "equal_pair", "a better and a worse completion: '2'"),
        ({"q": "1", "good": 2, "bad": "3"}, "good", "wrong_type", "must be text or messages; found '2'"),
        ({"q": "1", "good": " ", "bad": "3"}, "good", "empty", "column 'good' is empty"),
        ({"q": "1", "good": ["2"], "bad": "3"}, "good", "wrong_type", "messages with role and content"),
        ({"q": "1", "good": [], "bad": "3"}, "good", "empty", "has no messages"),
        ({"q": "1", "good": [{"role": "bot", "content": "2"}], "bad": "3"}, "good", "role", "the role 'bot'"),
        (
            {"q": "1", "good": [assistant("a\x00")], "bad": "3"},
            "good",
            "nul_character",
            "message 1 of column",
        ),
        (
            {"q": "1", "good": [user("9"), assistant("2")], "bad": "3"},
            "good",
            "role",
            "roles user, assistant",
        ),
        ({"q": "1", "good": [assistant("2"), user("1")], "bad": "3"}, "good", "role", "and end with one"),
        ({"q": "1", "good": [user("1")], "bad": "3"}, "good", "role", "it has the roles none"),
        (
            {"q": [assistant("1")], "good": "2", "bad": "3"},
            "q",
            "role",
            "ends with a message of the assistant",
        ),
    ],
)
def test_a_faulty_pair_is_named_by_row_and_column(
    row: dict[str, Any], column: str, code: str, says: str
) -> None:
    found, kept = written({"q": "0", "good": "1", "bad": "2"}, row)
    [error] = found.errors
    assert (error.pointer, error.code) == (f"/rows/1/{column}", code)
    assert error.message.startswith("line 2: ") and says in error.message
    assert len(kept) == 1


def test_messages_have_no_template() -> None:
    mapping = Mapping(prompt_column="q", chosen_column="good", rejected_column="bad", template="{prompt} = ?")
    found, _ = written({"q": [user("1+1")], "good": "2", "bad": "3"}, mapping=mapping)
    assert (found.errors[0].pointer, found.errors[0].code) == ("/rows/0/q", "wrong_type")
    assert "leave the template '{prompt} = ?' out" in found.errors[0].message


def test_rows_without_a_pair_need_an_answer_column() -> None:
    mapping = Mapping(prompt_column="q", answer_column="a", chosen_column="good", rejected_column="bad")
    found, [plain, pair] = written(
        {"q": "1", "a": "1"}, {"q": "2", "a": "2", "good": "x", "bad": "y"}, mapping=mapping
    )
    assert plain.chosen is msgspec.UNSET and pair.chosen == [assistant("x")]
    assert (dict(found.with_pair), found.rows) == ({"train": 1}, 2)


@pytest.mark.parametrize(
    ("mapping", "pointer", "code"),
    [
        ({}, "/mapping/answer_column", "required"),
        ({"chosen_column": "good"}, "/mapping/rejected_column", "half_pair"),
        ({"answer_column": "a", "rejected_column": "bad"}, "/mapping/chosen_column", "half_pair"),
        ({"chosen_column": "good", "rejected_column": "good"}, "/mapping/rejected_column", "same_column"),
    ],
)
def test_a_mapping_names_both_halves_or_an_answer(mapping: dict[str, str], pointer: str, code: str) -> None:
    [error] = rows.mapping_faults(Mapping(prompt_column="q", **mapping))
    assert (error.pointer, error.code) == (pointer, code)


def test_repeated_pairs_are_duplicates_and_reversed_ones_conflicts() -> None:
    survey = ColumnProfiler()
    pair = {"q": "1", "good": "a", "bad": "b", "s": "train"}
    other = {"q": "1", "good": "a", "bad": "c", "s": "train"}
    written(pair, other, other, {**pair, "good": "b", "bad": "a", "s": "eval"}, survey=survey)
    assert (survey.duplicates, survey.conflicts, survey.first_conflicts) == (1, 1, [(3, 0)])
    assert dict(survey.leaks) == {"eval in train": 1}
    assert survey.rendered[0]["chosen"] == [assistant("a")]


def test_both_completions_of_a_pair_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"x": 0, "?": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    _, kept = written({"q": "x x", "good": "x", "bad": "x x x"}, {"q": "x x", "good": "x x", "bad": "x"})
    text = tokenizer.to_str().encode()
    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in kept)
    found = lengths.measure(io.BytesIO(len(text).to_bytes(8, "big") + text + lines))
    assert found["counts"]["completions"] == {"train": [(1, 2), (2, 1), (3, 1)]}
    assert (found["without_completion"], found["duplicates"], found["conflicts"]) == (0, 0, 0)


def test_a_version_of_pairs_is_listed_searched_split_and_not_trained_on_by_rl(alice: Any) -> None:
    data = "".join(
        json.dumps({"q": f"{number}+1", "good": f"{number + 1} is right", "bad": "no idea"}) + "\n"
        for number in range(40)
    ).encode()
    mapping = {"prompt_column": "q", "chosen_column": "good", "rejected_column": "bad"}
    dataset = alice.post("/datasets", {"name": "pairs"}).json()["id"]
    version = alice.version(dataset, alice.upload(data), mapping).json()
    assert (version["with_pair"], version["mapping"]["answer_column"]) == ({"train": 40}, None)
    [found] = alice.get(f"/dataset-versions/{version['id']}/rows?q=40 is right").json()["data"]
    assert (found["row"], found["chosen"]) == (39, [assistant("40 is right")])
    derived = alice.post(
        f"/dataset-versions/{version['id']}/split", {"ratios": {"train": 0.5, "eval": 0.5}, "seed": 1}
    ).json()
    assert derived["with_pair"] == derived["splits"]
