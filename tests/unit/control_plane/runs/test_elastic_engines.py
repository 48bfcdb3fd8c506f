"""The number of engines changes while a run continues: slots join its attempt and leave it."""

from __future__ import annotations

from typing import Any

import pytest

from control_plane.fleet.models import Lease, Node
from control_plane.runs import elastic_engines
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Job, Run
from oolong.contracts.lifecycle import EndReason


def want(person: Any, run: Any, engines: Any) -> Any:
    return person.post(f"/runs/{run['id']}/runtime", {"changes": {"rollout": {"engines": engines}}})


def names(machine: Any) -> list[str]:
    (attempt,) = machine.beat().attempts
    return [job.name for job in attempt.jobs if not job.stop]


def test_an_engine_joins_on_an_idle_slot_and_another_leaves(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node(slots=4)
    run = start(machine)
    changed = want(alice, run, 3)
    assert changed.status_code == 202 and changed.json()["live"]["engines"] == 3
    tick()
    (attempt,) = machine.beat().attempts
    joined = [job for job in attempt.jobs if job.name in ("rollout-1", "rollout-2")]
    assert len({job.engine_port for job in joined} - {0}) == 2, "each has a port of its own"
    assert {job.slots[0] for job in joined} == {"cpu-2", "cpu-3"}
    machine.beat()
    assert alice.see(run["id"])["status"] == "RUNNING"
    assert Lease.objects.filter(released_at=None).count() == 4

    assert want(alice, run, 1).status_code == 202
    machine.beat()
    machine.beat()
    tick()
    assert alice.see(run["id"])["status"] == "RUNNING", "who leaves ends nothing"
    assert Lease.objects.filter(released_at=None).count() == 2
    told = [event["message"] for event in alice.events(run["id"]) if event["kind"] == "engines"]
    assert told[0].startswith("rollout-1, rollout-2 joins on cpu-2, cpu-3")
    assert told[1] == "rollout-1, rollout-2 stops; 1 continue"

    want(alice, run, 2)
    tick()
    assert "rollout-3" in names(machine), "a name is used once"


def test_without_an_idle_slot_it_waits_and_says_so(alice: Any, node: Any, start: Any, tick: Any) -> None:
    machine = node(slots=2)
    run = start(machine)
    want(alice, run, 2)
    tick()
    assert alice.see(run["id"])["conditions"] == ["ENGINES_WAITING"]
    tick()
    assert [event["kind"] for event in alice.events(run["id"])].count("conditions") == 1
    want(alice, run, 1)
    assert alice.see(run["id"])["conditions"] == []


def test_the_queue_goes_before_a_request_for_more_engines(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    run = start(node(slots=4))
    other = alice.run(name="other")
    want(alice, run, 3)
    tick()
    assert alice.see(other["id"])["status"] == "STARTING"
    assert Job.objects.filter(attempt__run_id=run["id"], kind="rollout").count() == 1


def test_the_teams_limit_holds_for_engines_too(alice: Any, node: Any, start: Any, tick: Any) -> None:
    run = start(node(slots=4))
    assert (
        alice.call(
            "PUT", f"/pools/default/teams/{alice.project.team_id}/quota", {"limit_slots": 3}
        ).status_code
        == 200
    )
    want(alice, run, 3)
    tick()
    assert Lease.objects.filter(released_at=None).count() == 3
    assert alice.see(run["id"])["conditions"] == ["ENGINES_WAITING"]


def test_a_next_attempt_begins_with_what_is_wanted_or_with_the_specs_number(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node(slots=3)
    run = start(machine, rollout={"engines": 2})
    want(alice, run, 1)
    assert alice.see(run["id"])["slots_needed"] == 2
    machine.beat()
    machine.exit(machine.job("controller"), EndReason.CONTROLLER_CRASHED, code=1, shipped=10)
    for _ in range(3):
        machine.beat()
        machine.ship_all()
        tick()
    assert alice.see(run["id"])["attempt_number"] == 2
    assert names(machine) == ["controller", "reward", "rollout-0", "trainer"]


def test_no_engine_at_all_and_a_draft_of_none_are_refused(alice: Any, node: Any, start: Any) -> None:
    run = start(node())
    refused = want(alice, run, 0)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/changes/rollout/engines")
    assert Run.objects.get().live == {}


def test_the_last_but_one_engine_stays_where_evaluation_needs_it(alice: Any, node: Any, start: Any) -> None:
    run = start(node(slots=3), rollout={"engines": 2}, evaluation={"every_steps": 5, "prompts": 8})
    refused = want(alice, run, 1)
    assert refused.json()["errors"][0]["code"] == "evaluation_takes_the_only_engine"


def test_a_number_that_is_lowered_while_slots_are_chosen_is_what_counts(
    alice: Any, node: Any, start: Any, tick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = node(slots=5)
    run = start(machine)
    want(alice, run, 4)

    def lower_first(run_id: str) -> Any:
        monkeypatch.setattr(elastic_engines, "lock_run", lock_run)
        assert want(alice, run, 2).status_code == 202
        return lock_run(run_id)

    monkeypatch.setattr(elastic_engines, "lock_run", lower_first)
    tick()
    assert Job.objects.filter(attempt__run_id=run["id"], kind="rollout").count() == 2
    assert Lease.objects.filter(released_at=None).count() == 3
    assert alice.see(run["id"])["conditions"] == []


def test_a_surplus_is_given_back_at_the_next_tick(alice: Any, node: Any, start: Any, tick: Any) -> None:
    machine = node(slots=4)
    run = start(machine)
    want(alice, run, 3)
    tick()
    machine.beat()
    machine.beat()
    row = Run.objects.get()
    Run.objects.update(live={**row.live, "engines": 2})
    tick()
    assert list(Job.objects.exclude(leaving_at=None).values_list("name", flat=True)) == ["rollout-2"]


def test_an_engine_that_joined_gives_its_slot_to_a_run_of_the_queue_and_comes_back_later(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node(slots=4)
    run = start(machine)
    want(alice, run, 3)
    tick()
    machine.beat()
    machine.beat()
    other = alice.run(name="other")
    tick()
    assert alice.see(other["id"])["status"] == "QUEUED"
    assert names(machine) == ["controller", "reward", "rollout-0", "trainer"], "what it was placed with stays"
    machine.ship_all()
    machine.beat()
    tick()
    assert alice.see(other["id"])["status"] == "STARTING"
    seen = alice.see(run["id"])
    assert (seen["status"], seen["live"]["engines"], seen["conditions"]) == (
        "RUNNING",
        3,
        ["ENGINES_WAITING"],
    )
    told = [event["message"] for event in alice.events(run["id"]) if event["kind"] == "engines"]
    assert told[-1].endswith("stops: a run in the queue needs its slot")

    alice.post(f"/runs/{other['id']}/cancel")
    for _ in range(4):
        machine.ship_all()
        machine.beat()
        tick(10)
    assert Job.objects.filter(attempt__run_id=run["id"], kind="rollout", leaving_at=None).count() == 3


@pytest.mark.parametrize(("limit", "engines"), [(7, 1), (8, 2)])
def test_an_engine_does_not_join_where_it_would_keep_a_run_of_its_team_over_the_limit(
    alice: Any, node: Any, start: Any, tick: Any, person: Any, clock: Any, limit: int, engines: int
) -> None:
    """It would have to leave again as soon as the run, which waits for a slot of another node, could start."""
    run, large = start(node(slots=3)), node("large", slots=5)
    other_team = person("bob", team="blue").project.team
    Lease.objects.create(
        slot=Node.objects.get(pk=large.node_id).slots.first(), team=other_team, holder="other", epoch=1, job="other",
        job_name="trainer", run="other", run_name="other", granted_at=clock.now, expires_at=clock.now,
    )  # fmt: skip
    quota = f"/pools/default/teams/{alice.project.team_id}/quota"
    assert alice.call("PUT", quota, {"limit_slots": limit}).status_code == 200
    waits = alice.run(name="other", rollout={"engines": 4})
    want(alice, run, 2)
    tick()
    assert alice.see(waits["id"])["pending_reason"] == "needs 5 slots on one node; 4 of 5 are free on large"
    assert Job.objects.filter(attempt__run_id=run["id"], kind="rollout").count() == engines
