"""A draft is a spec that waits for its author: edited, submitted, or deleted."""

from __future__ import annotations

from typing import Any

from control_plane.runs.models import Run


def draft(person: Any, **changes: Any) -> Any:
    return person.post("/runs", {"spec": person.spec(**changes), "draft": True})


def test_a_draft_is_edited_and_submitted_and_only_then_queued(alice: Any, node: Any, tick: Any) -> None:
    node()
    made = draft(alice, dataset={"version": "later@1"})
    assert made.status_code == 201, made.content
    run = made.json()
    assert (run["status"], run["dataset"], run["model"]["name"]) == (
        "DRAFT", {"id": "", "ref": "later@1"}, "tiny",
    )  # fmt: skip
    tick()
    assert alice.see(run["id"])["status"] == "DRAFT", "nobody places a draft"
    edited = alice.call("PATCH", f"/runs/{run['id']}", {"spec": alice.spec(name="better"), "tags": ["x"]})
    assert edited.status_code == 200, edited.content
    assert (edited.json()["name"], edited.json()["tags"]) == ("better", ["x"])
    submitted = alice.post(f"/runs/{run['id']}/submit")
    assert submitted.status_code == 202 and submitted.json()["status"] == "QUEUED"
    assert submitted.json()["spec"]["dataset"]["version"].startswith("dsv_")
    tick()
    assert alice.see(run["id"])["status"] == "STARTING"


def test_a_draft_that_names_what_is_not_there_stays_a_draft(alice: Any) -> None:
    run = draft(alice, model={"base_model": "none"}).json()
    refused = alice.post(f"/runs/{run['id']}/submit")
    assert (refused.status_code, refused.json()["code"]) == (422, "spec_invalid")
    assert refused.json()["errors"][0]["pointer"] == "/model/base_model"
    assert alice.see(run["id"])["status"] == "DRAFT"


def test_a_spec_that_is_not_well_formed_is_no_draft(alice: Any) -> None:
    refused = draft(alice, rollout={"groop": 1})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/rollout/groop")
    odd = alice.post("/runs", {"spec": alice.spec(), "draft": "yes"})
    assert (odd.status_code, odd.json()["errors"][0]["pointer"]) == (422, "/draft")
    run = draft(alice).json()
    worse = alice.call("PATCH", f"/runs/{run['id']}", {"spec": {"name": "no model"}})
    assert worse.status_code == 422
    mixed = alice.call("PATCH", f"/runs/{run['id']}", {"spec": alice.spec(), "name": "other"})
    assert mixed.json()["errors"][0] == {
        "pointer": "/name", "code": "in_the_spec", "message": "the name of a draft is part of its spec",
    }  # fmt: skip
    assert alice.see(run["id"])["name"] == "a run"


def test_what_is_for_runs_is_not_for_drafts_and_the_other_way_round(alice: Any) -> None:
    run = draft(alice).json()
    for verb in ("stop", "cancel", "force-stop"):
        refused = alice.post(f"/runs/{run['id']}/{verb}")
        assert (refused.status_code, refused.json()["code"]) == (409, "is_draft"), verb
    assert alice.call("PATCH", f"/runs/{run['id']}", {"notes": "x"}).json()["code"] == "is_draft"
    assert alice.post(f"/runs/{run['id']}/pause").json()["code"] == "cannot_pause"
    assert alice.call("DELETE", f"/runs/{run['id']}").status_code == 204
    assert not Run.objects.exists()
    queued = alice.run()
    for call in (
        alice.post(f"/runs/{queued['id']}/submit"),
        alice.call("PATCH", f"/runs/{queued['id']}", {"spec": alice.spec()}),
        alice.call("DELETE", f"/runs/{queued['id']}"),
    ):
        assert (call.status_code, call.json()["code"]) == (409, "not_a_draft")


def test_another_team_sees_no_draft(alice: Any, person: Any) -> None:
    run = draft(alice).json()
    charlie = person("charlie", team="blue")
    assert charlie.call("DELETE", f"/runs/{run['id']}").status_code == 404
    assert charlie.post(f"/runs/{run['id']}/submit").status_code == 404
