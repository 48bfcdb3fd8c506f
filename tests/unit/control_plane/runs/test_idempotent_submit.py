"""One run for each dedupe key and spec, however often a pipeline is started."""

from __future__ import annotations

from typing import Any

import pytest

from control_plane.runs.models import Run


def ask(alice: Any, key: Any = "sha-1", **spec: Any) -> Any:
    return alice.post("/runs", {"spec": alice.spec(**spec), "dedupe_key": key})


def test_the_same_key_and_spec_are_one_run(alice: Any) -> None:
    first, again = ask(alice), ask(alice)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert Run.objects.count() == 1
    assert ask(alice, "sha-2").json()["id"] != first.json()["id"]


def test_the_same_key_with_another_spec_is_refused_and_names_the_run(alice: Any) -> None:
    first = ask(alice).json()
    refused = ask(alice, name="other")
    assert (refused.status_code, refused.json()["code"]) == (409, "dedupe_mismatch")
    assert refused.json()["run_id"] == first["id"] and first["id"] in refused.json()["detail"]
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    ("status", "fault", "lets_go"),
    [
        ("STOPPED", "none", True),
        ("FAILED", "infra", True),
        ("FAILED", "platform", True),
        ("FAILED", "config", False),
        ("SUCCEEDED", "none", False),
        ("RUNNING", "none", False),
    ],
)
def test_a_run_that_can_give_no_answer_lets_go_of_its_key(
    alice: Any, status: str, fault: str, lets_go: bool
) -> None:
    first = ask(alice).json()
    Run.objects.update(status=status, fault=fault)
    again = ask(alice)
    assert again.status_code == (201 if lets_go else 200)
    assert (again.json()["id"] != first["id"]) == lets_go
    assert ("dedupe_key" in [event["kind"] for event in alice.events(first["id"])]) == lets_go


def test_a_key_is_of_a_project(alice: Any, person: Any) -> None:
    charlie = person("charlie", team="blue")
    first = ask(alice).json()
    other = charlie.post("/runs", {"spec": alice.spec(), "dedupe_key": "sha-1"})
    assert first["id"] not in other.content.decode()


@pytest.mark.parametrize("key", ["", "x" * 201, 7, None])
def test_a_key_that_is_none_is_refused(alice: Any, key: Any) -> None:
    refused = ask(alice, key)
    if key == 7:
        assert refused.status_code == 201, "a number is text as well"
        return
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/dedupe_key")
    assert not Run.objects.exists()


def test_a_faulty_spec_takes_no_key(alice: Any) -> None:
    assert ask(alice, kind="ppo").status_code == 422
    assert ask(alice).status_code == 201


def test_a_draft_takes_no_key(alice: Any) -> None:
    refused = alice.post("/runs", {"spec": alice.spec(), "dedupe_key": "sha-1", "draft": True})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/dedupe_key")
