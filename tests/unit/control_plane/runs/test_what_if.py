"""What-if: the scheduler on variants of a run."""

from __future__ import annotations

from typing import Any

from control_plane.fleet import pools
from control_plane.runs.models import Run


def what_if(person: Any, run: Any) -> Any:
    answer = person.post(f"/runs/{run['id']}/what-if")
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_with_fewer_engines_a_waiting_run_would_start_now(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    start(node(slots=5))  # holds 2, 3 are free
    waits = alice.run(name="waits", rollout={"engines": 4})
    tick()
    found = what_if(alice, waits)
    assert (found["as_is"]["starts_now"], found["as_is"]["kind"]) == (False, None)
    assert [one["message"] for one in found["variants"]] == [
        "with 2 engines instead of 4 it starts now",
        "with 3 engines instead of 4 it waits as well, and its start is unknown: "
        "needs 4 slots on one node; 3 of 5 are free on node-1",
    ]  # fmt: skip
    best = found["variants"][0]
    assert best["sooner"] and best["changes"] == {"rollout": {"engines": 2}}
    clone = alice.post(f"/runs/{waits['id']}/clone", {"changes": best["changes"]})
    assert clone.status_code == 201
    assert alice.post(f"/runs/{waits['id']}/cancel").status_code in (200, 202)
    tick()
    assert alice.see(clone.json()["id"])["status"] == "STARTING"


def test_another_pool_that_the_team_may_use_is_a_variant_and_one_that_it_may_not_is_none(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    lab, secret = pools.create_pool("lab"), pools.create_pool("secret")
    pools.bind_team(lab, alice.project.team)
    start(node(slots=2))
    node("lab-1", 4, pool="lab")
    node("secret-1", 4, pool=secret.pk)
    waits = alice.run(name="waits")
    tick()
    found = what_if(alice, waits)
    assert [(one["kind"], one["message"]) for one in found["variants"]] == [
        ("pool", "in pool lab instead of default it starts now")
    ]


def test_a_spec_that_starts_now_needs_no_variant_and_nothing_is_created(alice: Any, node: Any) -> None:
    node(slots=8)
    answer = alice.post("/runs/what-if", {"spec": alice.spec(rollout={"engines": 4})}).json()
    assert answer["valid"] and answer["what_if"]["as_is"]["message"] == "as it is it starts now"
    assert answer["what_if"]["variants"] == [] and not Run.objects.exists()


def test_an_unsubmitted_spec_is_compared_as_a_queued_run_is(alice: Any, node: Any, start: Any) -> None:
    start(node(slots=5))
    answer = alice.post("/runs/what-if", {"spec": alice.spec(rollout={"engines": 4})}).json()
    assert answer["what_if"]["variants"][0]["message"] == "with 2 engines instead of 4 it starts now"


def test_a_spec_with_errors_has_errors_and_no_comparison(alice: Any) -> None:
    answer = alice.post("/runs/what-if", {"spec": alice.spec(rollout={"engines": 0})}).json()
    assert not answer["valid"] and answer["what_if"] is None
    assert answer["errors"][0]["pointer"] == "/rollout/engines"
    missing = alice.post("/runs/what-if", {})
    assert missing.status_code == 422 and missing.json()["errors"][0]["pointer"] == "/spec"


def test_a_run_that_does_not_wait_has_no_what_if(alice: Any, node: Any, start: Any) -> None:
    run = start(node(slots=2))
    answer = alice.post(f"/runs/{run['id']}/what-if")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_waiting")


def test_the_command_compares(alice: Any, node: Any, start: Any, tick: Any, oolong: Any) -> None:
    start(node(slots=5))
    waits = alice.run(name="waits", rollout={"engines": 4})
    tick()
    done = oolong("run", "why", waits["id"], "--what-if")
    assert done.code == 0, done.err
    assert "now\tyes\twith 2 engines instead of 4 it starts now" in done.out
