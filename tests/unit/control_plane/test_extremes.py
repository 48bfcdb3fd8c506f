"""Values at the edge of what a column, a number or a text can hold get a refusal with a reason, never a 500."""

from __future__ import annotations

from typing import Any

import pytest

TOO_MUCH = [
    {"trainer": {"total_train_steps": 2**31}},
    {"trainer": {"total_train_steps": 10**30}},
    {"placement": {"priority": 2**31}},
    {"rollout": {"group_size": 2**63}},
    {"kind": "sft", "sft": {"steps": 2**31}},
    {"name": "x" * 5000},
    {"dataset": {"version": "sums@99999999999999999999"}},
    {"dataset": {"version": "x" * 10000}},
]
UNKEEPABLE = [
    {"name": "a\x00b"},
    {"notes": "a\x00b"},
    {"notes": "\ud800"},
    {"reward": {"name": "math", "options": {"a": "\x00"}}},
]


@pytest.mark.parametrize("changes", TOO_MUCH)
def test_a_spec_with_a_value_that_nothing_can_hold_is_refused_with_its_place(
    alice: Any, changes: Any
) -> None:
    for path in ("/runs", "/runs/plan"):
        reply = alice.post(path, {"spec": alice.spec(**changes)})
        problem = reply.json()
        errors = problem["errors"]
        assert errors, (path, reply.status_code, problem)
        section = next(key for key in changes if key != "kind")
        assert any(section in error["pointer"] for error in errors), errors


@pytest.mark.parametrize("changes", UNKEEPABLE)
def test_a_text_that_no_database_keeps_is_refused(alice: Any, changes: Any) -> None:
    reply = alice.post("/runs", {"spec": alice.spec(**changes)})
    assert reply.status_code == 400
    assert "NUL" in reply.json()["detail"] or "half a character" in reply.json()["detail"]


@pytest.mark.parametrize("value", [2**31, 10**40, -(2**70), 1e308, "x" * 100_000, ["a"] * 1000, None, True])
def test_a_change_to_a_value_that_nothing_can_hold_is_refused(alice: Any, value: Any) -> None:
    run = alice.run()["id"]
    for changes in ({"staleness": {"max": value}}, {"rollout": {"max_concurrent_groups": value}}):
        assert alice.post(f"/runs/{run}/changes", {"changes": changes}).status_code in (200, 202, 422)
    assert alice.call("PATCH", "/pool/quota", {"limit_slots": value}).status_code in (200, 422)
    assert alice.call("PATCH", f"/runs/{run}", {"notes": value}).status_code in (200, 422)


@pytest.mark.parametrize("value", ["9" * 23, "-1", "%ED%A0%80", "1e999", "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0"])
def test_a_question_at_the_edge_is_answered_or_refused(alice: Any, value: str) -> None:
    run = alice.run()["id"]
    for path in (f"/runs/{run}/events", f"/runs/{run}/trajectories", "/audit", "/runs"):
        for name in ("cursor", "limit", "step", "actor"):
            assert alice.get(f"{path}?{name}={value}").status_code in (200, 422), (path, name)
