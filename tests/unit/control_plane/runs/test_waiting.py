"""Why a run waits, as a researcher sees it: reason, position, and what is ahead."""

from __future__ import annotations

from typing import Any

import pytest

from control_plane.fleet import pools
from control_plane.fleet.models import Pool
from tests.unit.control_plane.conftest import ready_model


@pytest.fixture
def mallory(alice: Any, person: Any) -> Any:
    """A person of another team, with a model and a dataset."""
    found = person("mallory", team="blue")
    ready_model(found)
    found.dataset()
    return found


def why(person: Any, run: Any) -> Any:
    answer = person.get(f"/runs/{run['id']}/wait")
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_a_wait_has_a_code_a_sentence_a_position_and_the_runs_ahead(
    alice: Any, mallory: Any, node: Any, start: Any, tick: Any
) -> None:
    start(node(slots=2))
    urgent = alice.run(name="urgent", placement={"priority": 600})
    other, last = mallory.run(name="secret"), alice.run(name="last")
    tick()
    first = why(mallory, other)
    assert first["code"] == "capacity", "the team that borrows less goes first"
    assert first["message"] == "needs 2 slots on one node; 0 of 2 are free on node-1"
    assert (first["position"], first["queue_length"], first["ahead"]) == (1, 3, [])
    found = why(alice, last)
    assert (found["code"], found["position"]) == ("behind", 3)
    assert [(run["run_id"], run["name"]) for run in found["ahead"]] == [
        ("", "another team's run"), (urgent["id"], "urgent"),
    ]  # fmt: skip


def test_the_explanation_is_the_one_that_the_run_and_the_queue_show(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    start(node(slots=2))
    pools.set_quota(Pool.objects.get(), alice.project.team, limit_slots=3)
    run = alice.run()
    tick()
    found, seen = why(alice, run), alice.see(run["id"])
    assert found["code"] == "quota"
    assert found["message"] == seen["pending_reason"] == alice.get("/pool").json()["queue"][0]["why"]
    assert found["position"] == seen["queue_position"]


def test_a_run_that_no_node_can_hold_says_so(alice: Any, node: Any, tick: Any) -> None:
    node(slots=2)
    run = alice.run(rollout={"engines": 4})
    tick()
    assert why(alice, run)["code"] == "never_fits"


def test_a_run_that_is_placed_at_the_next_tick_starts_now(alice: Any, node: Any) -> None:
    node(slots=2)
    found = why(alice, alice.run())
    assert found["starts_now"] and (found["code"], found["message"], found["position"]) == (None, "", None)


def test_a_run_that_does_not_wait_is_named_with_its_status(alice: Any, node: Any, start: Any) -> None:
    run = start(node(slots=2))
    answer = alice.get(f"/runs/{run['id']}/wait")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_waiting")
    assert "RUNNING" in answer.json()["detail"]


def test_the_command_explains_a_wait(alice: Any, node: Any, start: Any, tick: Any, oolong: Any) -> None:
    start(node(slots=2))
    ahead, run = alice.run(name="ahead"), alice.run(name="mine")
    tick()
    done = oolong("run", "why", run["id"])
    assert done.code == 0, done.err
    for text in ("waits behind 'ahead', for which node-1 is reserved", "2 of 2", "ahead (2 slots)"):
        assert text in done.out
    assert "QUEUED (position 1)" in oolong("run", "list").out
    assert "QUEUED (position 1): needs 2 slots" in oolong("run", "get", ahead["id"]).out
