"""Derived splits and differences: the same for ever, no prompt in two splits, every change counted."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.assets.datasets import derivation
from control_plane.assets.datasets.splits import derive_splits

KEYS = [b"%d" % n for n in range(1000)]
RATIOS = {"train": 0.9, "eval": 0.1}


def test_the_shares_are_met_and_the_seed_decides_who_is_where() -> None:
    splits = derive_splits(KEYS, RATIOS, seed=1)
    assert Counter(splits) == {"train": 900, "eval": 100}
    assert splits == derive_splits(KEYS, dict(reversed(RATIOS.items())), seed=1)
    assert splits != derive_splits(KEYS, RATIOS, seed=2)


@settings(max_examples=60, deadline=None)
@given(
    keys=st.lists(st.integers(0, 20).map(lambda n: b"%d" % n), min_size=1, max_size=60),
    ratios=st.lists(st.floats(0.05, 1), min_size=2, max_size=4),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_prompt_is_never_in_two_splits(keys: list[bytes], ratios: list[float], seed: int) -> None:
    splits = derive_splits(keys, {f"s{n}": ratio for n, ratio in enumerate(ratios)}, seed=seed)
    places: dict[bytes, set[str]] = {}
    for key, split in zip(keys, splits, strict=True):
        places.setdefault(key, set()).add(split)
    assert all(len(found) == 1 for found in places.values()) and "" not in splits


def test_each_stratum_is_divided_by_itself() -> None:
    strata = ["rare" if n < 10 else "common" for n in range(1000)]
    splits = derive_splits(KEYS, RATIOS, seed=3, strata=strata)
    assert Counter(split for split, stratum in zip(splits, strata, strict=True) if stratum == "rare") == {
        "train": 9, "eval": 1,
    }  # fmt: skip


def test_rows_added_elsewhere_in_the_file_keep_the_order_of_the_others() -> None:
    """The order is by prompt and seed, not by row number."""
    shuffled = KEYS[::-1]
    there = dict(zip(shuffled, derive_splits(shuffled, RATIOS, seed=1), strict=True))
    assert there == dict(zip(KEYS, derive_splits(KEYS, RATIOS, seed=1), strict=True))


# --- versions ---------------------------------------------------------------------------------------------


def version(alice: Any, ref: str = "sums@1") -> Any:
    return alice.get(f"/dataset-versions/resolve?ref={ref}").json()


def derive(alice: Any, **changes: Any) -> Any:
    body = {"ratios": RATIOS, "seed": 7, **changes}
    return alice.post(f"/dataset-versions/{version(alice)['id']}/split", body)


def test_derived_splits_are_a_version_that_remembers_how_it_was_made(alice: Any) -> None:
    made = derive(alice)
    assert made.status_code == 201, made.content
    found = made.json()
    assert (found["ref"], found["rows"], found["splits"]) == ("sums@2", 128, {"train": 115, "eval": 13})
    assert found["derived"] == {"from": "sums@1", "ratios": RATIOS, "seed": 7, "stratify": None}
    again = derive(alice)
    assert (again.status_code, again.json()) == (200, found)
    assert derive(alice, seed=8).json()["ref"] == "sums@3"
    assert alice.get(f"/dataset-versions/{found['id']}/leakage").json()["leaks"] == {}
    rows = alice.get(f"/dataset-versions/{found['id']}/rows?split=eval&limit=200").json()["data"]
    assert len(rows) == 13 and {row["split"] for row in rows} == {"eval"}


@pytest.mark.parametrize(
    ("changes", "pointer", "says"),
    [
        ({"ratios": {"train": 1.0}}, "/ratios", "give 2 to 20 splits"),
        ({"ratios": {"train": 0.9, "eval": 0}}, "/ratios", "ratios above 0"),
        ({"ratios": {"train": 1, "eval": 2}}, "/ratios", "at most 1"),
        ({"ratios": {"train": 0.5, "eval": 0.3}}, "/ratios", "add up to 0.8"),
        ({"ratios": {"train": 0.9, "eval": 0.2}}, "/ratios", "add up to 1.1"),
        ({"ratios": {"train": 0.9999, "eval": 0.0001}}, "/ratios/eval", "128 rows are too few"),
        ({"ratios": {"train": 0.5, " ": 0.5}}, "/ratios", "' ' is no name of a split"),
        ({"ratios": {"train": 0.5, "x" * 61: 0.5}}, "/ratios", "1 to 60 characters"),
        ({"ratios": {}}, "/ratios", "give 2 to 20 splits"),
        ({"seed": -1}, "/seed", "it is -1"),
        ({"stratify": "weather"}, "/stratify", "must be one of answer, split; it is 'weather'"),
    ],
)
def test_odd_ratios_and_empty_splits_are_refused(
    alice: Any, changes: dict[str, Any], pointer: str, says: str
) -> None:
    reply = derive(alice, **changes)
    assert reply.status_code == 422
    [error] = reply.json()["errors"]
    assert error["pointer"] == pointer and says in error["message"], error
    assert version(alice, "sums@latest")["number"] == 1


def test_a_version_that_is_too_large_for_a_request_is_refused_and_says_so(
    alice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derivation, "MOST_ROWS", 127)
    reply = derive(alice)
    assert (reply.status_code, reply.json()["code"]) == (422, "too_many_rows")
    leaks = alice.get(f"/dataset-versions/{version(alice)['id']}/leakage")
    assert (leaks.status_code, leaks.json()["code"]) == (422, "too_many_rows")


def test_prompts_in_two_splits_are_counted_in_an_uploaded_version(alice: Any) -> None:
    rows = [
        {"question": "same", "answer": n, "split": split}
        for n, split in enumerate(("train", "eval", "train"))
    ]
    made = alice.dataset("leaky", [*rows, {"question": "other", "answer": 1, "split": "eval"}]).json()
    assert alice.get(f"/dataset-versions/{made['id']}/leakage").json()["leaks"] == {"eval, train": 1}


def test_the_difference_counts_prompts_added_removed_and_changed(alice: Any) -> None:
    old = [{"question": f"q{n}", "answer": n, "split": "train"} for n in range(4)]
    first = alice.dataset("d", old).json()
    new = [*old[1:3], {**old[3], "answer": 99}, {"question": "new", "answer": 1, "split": "eval"}]
    upload = alice.upload(b"".join(json.dumps(row).encode() + b"\n" for row in new))
    second = alice.version(first["dataset"]["id"], upload, first["mapping"]).json()
    found = alice.get(f"/dataset-versions/{second['id']}/diff?from=d@1").json()
    assert [found[name] for name in ("added", "removed", "changed", "unchanged", "identical")] == [
        1,
        1,
        1,
        2,
        False,
    ]
    assert found["changed_rows"][0]["to"]["answer"] == "99"
    assert found["splits"]["eval"] == {"from": 0, "to": 1}
    same = alice.get(f"/dataset-versions/{second['id']}/diff?from=d@2").json()
    assert same["identical"] and same["unchanged"] == 4
    assert alice.get(f"/dataset-versions/{second['id']}/diff?from=d@9").status_code == 404
    nothing = alice.get(f"/dataset-versions/{second['id']}/diff")
    assert (nothing.status_code, nothing.json()["errors"][0]["pointer"]) == (422, "/from")
    assert "name@2" in nothing.json()["detail"]


def test_the_search_finds_rows_by_text_page_after_page(alice: Any) -> None:
    path = f"/dataset-versions/{version(alice)['id']}/rows?q=1%2B1&limit=2"
    first = alice.get(path).json()
    assert [row["row"] for row in first["data"]] == [1, 11] and first["has_more"]
    second = alice.get(f"{path}&cursor={first['next_cursor']}").json()
    assert [row["row"] for row in second["data"]] == [21, 31]
    refused = alice.get(f"{path}&split=exam")
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/split")
    assert "'exam': sums@1 has eval, train" in refused.json()["detail"]
    assert alice.get(path.replace("1%2B1", "nothing")).json() == {
        "data": [],
        "next_cursor": None,
        "has_more": False,
    }


def test_the_command_splits_and_compares(oolong: Any) -> None:
    words = ("dataset", "split", "sums@1", "--ratio", "train=0.9", "--ratio", "eval=0.1", "--seed", "7")
    done = oolong(*words)
    assert done.out == "sums@2\n" and "eval 13" in done.err and "train 115" in done.err
    assert " unchanged" in oolong("dataset", "diff", "sums@1", "sums@2").out
    assert oolong("dataset", "split", "sums@1", "--ratio", "train").code == 2
