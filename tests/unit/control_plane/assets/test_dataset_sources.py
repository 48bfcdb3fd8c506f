"""Sources of rows: read from a column, merged from several datasets, weighted by a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

MAPPING = {"prompt_column": "q", "answer_column": "a", "split_column": "s", "source_column": "from"}


def upload(alice: Any, name: str, rows: list[dict[str, Any]]) -> Any:
    dataset = alice.post("/datasets", {"name": name}).json()["id"]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return alice.version(dataset, alice.upload(data), MAPPING)


def row(number: int, source: str | None, split: str = "train") -> dict[str, Any]:
    return {"q": f"{source} {number}", "a": str(number), "s": split, "from": source}


def mixed(alice: Any, *, unnamed: int = 0) -> Any:
    """mixed@1: 6 rows of openai/gsm8k and 3 of code to train on, 2 to evaluate on."""
    rows = [row(n, "openai/gsm8k") for n in range(6)] + [row(n, "code") for n in range(3)]
    rows += [row(n, None) for n in range(unnamed)] + [row(n, "code", "eval") for n in range(10, 12)]
    return upload(alice, "mixed", rows).json()


def test_rows_are_counted_by_split_and_source(alice: Any) -> None:
    version = mixed(alice, unnamed=1)
    assert version["sources"] == {"train": {"openai/gsm8k": 6, "code": 3}, "eval": {"code": 2}}
    listed = alice.get(f"/dataset-versions/{version['id']}/rows").json()["data"]
    assert [found["source"] for found in listed] == ["openai/gsm8k"] * 6 + ["code"] * 3 + ["", "code", "code"]


@pytest.mark.parametrize("source", ["a b", "-x", "é", "x" * 61])
def test_a_source_with_a_name_that_no_metric_can_have_is_refused_with_its_row(
    alice: Any, source: str
) -> None:
    reply = upload(alice, "odd", [row(0, "code"), row(1, source)])
    (error,) = reply.json()["errors"]
    assert (reply.status_code, error["pointer"], error["code"]) == (422, "/rows/1/from", "source_name")
    assert "letters, digits" in error["message"]


def test_a_column_that_is_no_source_is_recognized_by_its_many_values(alice: Any) -> None:
    reply = upload(alice, "odd", [row(n, f"id{n}") for n in range(51)])
    (error,) = reply.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/mapping/source_column", "too_many_sources")


def test_new_splits_keep_the_sources(alice: Any) -> None:
    parent = mixed(alice)
    made = alice.post(
        f"/dataset-versions/{parent['id']}/split", {"ratios": {"train": 0.5, "eval": 0.5}, "seed": 1}
    ).json()
    totals: dict[str, int] = {}
    for sources in made["sources"].values():
        for name, count in sources.items():
            totals[name] = totals.get(name, 0) + count
    assert totals == {"openai/gsm8k": 6, "code": 5}


# --- merged versions --------------------------------------------------------------------------------------


def merge(alice: Any, *versions: str, name: str = "all") -> Any:
    found = alice.get(f"/datasets?name={name}").json()["data"]
    dataset = found[0]["id"] if found else alice.post("/datasets", {"name": name}).json()["id"]
    return alice.post(f"/datasets/{dataset}/merge", {"versions": list(versions)})


def test_merged_rows_follow_each_other_and_are_named_by_their_dataset_where_they_had_no_source(
    alice: Any,
) -> None:
    mixed(alice)
    made = merge(alice, "sums@1", "mixed@latest")
    assert made.status_code == 201, made.content
    version = made.json()
    assert (version["ref"], version["rows"]) == ("all@1", 128 + 11)
    assert version["sources"]["train"] == {"sums": 64, "openai/gsm8k": 6, "code": 3}
    assert version["splits"] == {"train": 73, "eval": 66}
    assert version["derived"] == {"merged": ["sums@1", "mixed@1"]}
    seen, cursor = [], ""
    while cursor is not None:
        page = alice.get(f"/dataset-versions/{version['id']}/rows?limit=100&cursor={cursor}").json()
        seen += page["data"]
        cursor = page["next_cursor"]
    assert [found["row"] for found in seen] == list(range(139))
    assert (seen[127]["source"], seen[128]["source"]) == ("sums", "openai/gsm8k")
    again = merge(alice, "sums@1", "mixed@latest")
    assert (again.status_code, again.json()) == (200, version)


def test_a_merge_of_what_is_not_there_makes_nothing(alice: Any) -> None:
    reply = merge(alice, "sums@1", "nothing@1")
    assert reply.status_code == 404 and "nothing@1" in reply.json()["detail"]
    assert merge(alice).status_code == 422
    assert alice.get("/datasets?name=all").json()["data"][0]["versions"] == []


def test_a_dataset_whose_name_is_no_source_is_refused(alice: Any) -> None:
    alice.dataset(name="my sums")
    reply = merge(alice, "sums@1", "my sums@1")
    (error,) = reply.json()["errors"]
    assert (reply.status_code, error["pointer"], error["code"]) == (422, "/versions/1", "source_name")


def test_nobody_merges_into_a_dataset_of_another_project(alice: Any, person: Any) -> None:
    dataset = alice.get("/datasets?name=sums").json()["data"][0]["id"]
    mallory = person("mallory", team="blue")
    assert mallory.post(f"/datasets/{dataset}/merge", {"versions": ["sums@1"]}).status_code == 404


# --- weights ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "pointer", "code", "says"),
    [
        ({"openai/gsm8k": 1}, "/dataset/weights", "source_without_weight", "'code'"),
        ({"openai/gsm8k": 1, "code": 1, "law": 2}, "/dataset/weights/law", "unknown_source", "code (3 rows)"),
        ({"openai/gsm8k": 0, "code": 1}, "/dataset/weights", "split_too_small", "3 rows"),
        ({"openai/gsm8k": 0, "code": 0}, "/dataset/weights", "no_weight", "nothing to sample"),
        ({"openai/gsm8k": -1, "code": 1}, "/dataset/weights/openai~1gsm8k", "greater_than_equal", "-1"),
    ],
)
def test_weights_that_do_not_fit_the_dataset_are_refused(
    alice: Any, weights: dict[str, float], pointer: str, code: str, says: str
) -> None:
    mixed(alice)
    spec = alice.spec(
        dataset={"version": "mixed@1", "weights": weights}, trainer={"groups_per_step": 4}, evaluation=None
    )
    errors = {error["pointer"]: error for error in alice.post("/runs", {"spec": spec}).json()["errors"]}
    assert errors[pointer]["code"] == code
    assert says in errors[pointer]["message"]


def test_weights_need_a_source_on_every_row(alice: Any) -> None:
    mixed(alice, unnamed=1)
    weights = {"openai/gsm8k": 1, "code": 1}
    spec = alice.spec(dataset={"version": "mixed@1", "weights": weights}, trainer={"groups_per_step": 4})
    errors = {error["code"]: error for error in alice.post("/runs", {"spec": spec}).json()["errors"]}
    assert "1 of 10 rows" in errors["rows_without_source"]["message"]
    assert "source_column" in errors["rows_without_source"]["message"]


def test_a_run_keeps_its_weights_and_no_other_kind_has_any(alice: Any) -> None:
    mixed(alice)
    dataset = {"version": "mixed@1", "weights": {"openai/gsm8k": 3, "code": 1}}
    small = {"trainer": {"groups_per_step": 4}, "evaluation": {"prompts": 2}}
    run = alice.run(dataset=dataset, **small)
    assert run["spec"]["dataset"]["weights"] == {"openai/gsm8k": 3.0, "code": 1.0}
    refused = alice.post(
        "/runs", {"spec": alice.spec(kind="eval", dataset=dataset, evaluation={"prompts": 2})}
    )
    assert ("/dataset/weights", "option_of_rl") in {
        (error["pointer"], error["code"]) for error in refused.json()["errors"]
    }
