"""Dataset aliases: names that mean one version at a time."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def dataset(alice: Any) -> str:
    """`sums`, with a second version."""
    found: str = alice.get("/datasets?name=sums").json()["data"][0]["id"]
    upload = alice.upload(b'{"question": "9+9", "answer": 18}\n')
    made = alice.version(found, upload, {"prompt_column": "question", "answer_column": "answer"})
    assert made.status_code == 201, made.content
    return found


def put(alice: Any, dataset: str, alias: str, **body: Any) -> Any:
    return alice.call("PUT", f"/datasets/{dataset}/aliases/{alias}", body)


def test_an_alias_means_a_version_until_it_is_moved(alice: Any, dataset: str) -> None:
    assert put(alice, dataset, "gold", version="1").json()["ref"] == "sums@1"
    assert alice.get("/dataset-versions/resolve?ref=sums@gold").json()["ref"] == "sums@1"
    assert put(alice, dataset, "gold", version="sums@latest", expected=1).json()["number"] == 2
    assert alice.get("/dataset-versions/resolve?ref=sums@gold").json()["ref"] == "sums@2"
    assert alice.get(f"/datasets/{dataset}").json()["aliases"] == {"gold": 2}
    assert [one["name"] for one in alice.get(f"/datasets/{dataset}/aliases").json()["data"]] == ["gold"]
    told = [event["message"] for event in alice.get("/project/events").json()["data"]]
    assert any("sums@gold → sums@2" in message for message in told)


def test_a_run_pins_what_the_alias_means_when_it_is_created(alice: Any, dataset: str) -> None:
    first = put(alice, dataset, "gold", version="1").json()["version_id"]
    run = alice.run(dataset={"version": "sums@gold"})
    put(alice, dataset, "gold", version="2")
    assert alice.see(run["id"])["spec"]["dataset"]["version"] == first


def test_an_alias_that_somebody_moved_meanwhile_is_not_moved_blindly(alice: Any, dataset: str) -> None:
    put(alice, dataset, "gold", version="2")
    reply = put(alice, dataset, "gold", version="1", expected=1)
    assert (reply.status_code, reply.json()["code"]) == (409, "alias_moved")
    assert alice.get(f"/datasets/{dataset}").json()["aliases"] == {"gold": 2}


@pytest.mark.parametrize("alias", ["latest", "3", "-x", "a" * 61, "a b"])
def test_what_would_be_read_as_a_number_or_latest_is_no_alias(alice: Any, dataset: str, alias: str) -> None:
    reply = put(alice, dataset, alias, version="1")
    assert reply.status_code == 422 and reply.json()["errors"][0]["pointer"] == "/alias"


@pytest.mark.parametrize(("version", "status"), [("9", 404), ("other@1", 422), ("nothing@1", 404)])
def test_only_a_version_of_the_dataset_can_be_meant(
    alice: Any, dataset: str, version: str, status: int
) -> None:
    alice.dataset("other")
    assert put(alice, dataset, "gold", version=version).status_code == status
    assert alice.get(f"/datasets/{dataset}").json()["aliases"] == {}


def test_a_removed_alias_means_nothing_and_others_never_saw_it(alice: Any, person: Any, dataset: str) -> None:
    put(alice, dataset, "gold", version="1")
    charlie = person("charlie", team="blue")
    assert charlie.get(f"/datasets/{dataset}/aliases").status_code == 404
    assert put(charlie, dataset, "gold", version="1").status_code == 404
    assert alice.call("DELETE", f"/datasets/{dataset}/aliases/gold").status_code == 204
    assert alice.call("DELETE", f"/datasets/{dataset}/aliases/gold").status_code == 404
    assert alice.get("/dataset-versions/resolve?ref=sums@gold").status_code == 404


def test_the_command_sets_shows_and_removes_an_alias(oolong: Any, dataset: str) -> None:
    assert oolong("dataset", "alias", "sums@gold", "1").out == "sums@1\n"
    assert oolong("dataset", "alias", "sums@gold").out == "sums@1\n"
    assert oolong("dataset", "alias", "sums@gold", "--remove").code == 0
    assert oolong("dataset", "alias", "sums@gold").code != 0
    assert oolong("dataset", "alias", "gold", "1").code == 2
