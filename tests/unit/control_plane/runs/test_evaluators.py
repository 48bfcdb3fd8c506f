"""An evaluation that is due gets a slot that the queue leaves idle, and gives it back (docs/decisions/0032)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from control_plane.fleet.models import Lease, Node
from control_plane.runs import node_reports
from control_plane.runs.models import Attempt, Job, Run
from control_plane.telemetry.ingest import outbox
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.telemetry import StateSnapshot
from tests.unit.control_plane.telemetry.world import encode

TASK = "step-20-v20"
EVALUATED = {"evaluation": {"every_steps": 20, "prompts": 8, "allow_blocking": True}}
Tell = Callable[[Any], None]


@pytest.fixture
def tell() -> Callable[..., None]:
    """What the controller of the newest attempt says that it would like an evaluator for."""
    told: Counter[str] = Counter()

    def say(machine: Any, wanted: Any = TASK) -> None:
        job = machine.job("controller")
        body = encode(StateSnapshot(name="pipeline", value={"evaluator_wanted": wanted}))
        outbox.ingest_outbox(job, "main-0.jsonl", offset=told[job], body=body)
        told[job] += len(body)

    return say


@pytest.fixture
def evaluated(node: Any, start: Any, tick: Any, tell: Any) -> Callable[..., Any]:
    """A run on a node of `slots`, with an evaluator on the third."""

    def make(slots: int = 3) -> Any:
        machine = node(slots=slots)
        machine.run = start(machine, **EVALUATED)
        tell(machine)
        tick()
        machine.beat()
        return machine

    return make


def held() -> set[str]:
    return set(Lease.objects.filter(released_at=None).values_list("slot__name", flat=True))


def settle(machine: Any, tick: Any) -> None:
    """What is desired is done, reported, and looked at."""
    for _ in range(3):
        machine.beat()
        machine.ship_all()
        tick()


def test_an_evaluation_gets_an_idle_slot_and_the_slot_is_free_afterwards(
    alice: Any, evaluated: Any, tick: Any, tell: Any
) -> None:
    machine = evaluated()
    (attempt,) = machine.reply.attempts
    assert attempt.evaluators
    (job,) = [job for job in attempt.jobs if job.evaluates]
    assert (job.name, job.evaluates, job.slots, job.restarts) == ("evaluator-1", TASK, ["cpu-2"], 0)
    assert job.engine_port and job.engine_port not in attempt.ports.values()
    shown = {row["name"]: row for row in alice.get(f"/runs/{machine.run['id']}/jobs").json()["data"]}
    assert (shown["evaluator-1"]["evaluates"], shown["rollout-0"]["evaluates"]) == (20, None)
    lease = Lease.objects.get(job=job.job_id)
    assert (lease.run, lease.team_id) == (machine.run["id"], alice.project.team_id)

    machine.exit(job.job_id, EndReason.COMPLETED)
    tell(machine, "")
    settle(machine, tick)
    assert held() == {"cpu-0", "cpu-1"}
    assert alice.see(machine.run["id"])["status"] == "RUNNING", "its end means nothing to the run"
    said = [event["message"] for event in alice.events(machine.run["id"]) if event["kind"] == "evaluator"]
    assert said == ["evaluator-1 joins on cpu-2 of node-1 to evaluate version 20, beside the run's engines"]


def test_one_that_has_ended_and_was_read_costs_no_heartbeat_anything(
    evaluated: Any, tick: Any, tell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = evaluated()
    job_id = Job.objects.get(evaluates=TASK).pk
    machine.exit(job_id, EndReason.COMPLETED)
    tell(machine, "")
    settle(machine, tick)
    assert job_id not in {job.job_id for attempt in machine.reply.attempts for job in attempt.jobs}
    assert job_id not in machine.jobs, "its node has forgotten it"
    assert Job.objects.get(pk=job_id).state == "exited"
    locked: list[str] = []
    monkeypatch.setattr(node_reports, "lock_run", locked.append)
    machine.beat()
    assert locked == [], "nothing is news"


def test_there_is_one_at_a_time_and_it_goes_when_nothing_is_wanted_any_more(
    alice: Any, evaluated: Any, tick: Any, tell: Any
) -> None:
    machine = evaluated(slots=4)
    tick()
    assert Job.objects.filter(evaluates=TASK).count() == 1
    tell(machine, "step-40-v40")
    tick()
    assert [job.evaluates for job in Job.objects.filter(evaluates__gt="")] == [TASK]
    settle(machine, tick)
    assert Job.objects.get(evaluates="step-40-v40").state != "exited"
    assert Job.objects.get(evaluates=TASK).state == "exited"
    tell(machine, "")
    settle(machine, tick)
    assert held() == {"cpu-0", "cpu-1"}
    assert alice.see(machine.run["id"])["status"] == "RUNNING"


def test_a_run_that_waits_for_its_slot_gets_it(alice: Any, evaluated: Any, tick: Any) -> None:
    machine = evaluated(slots=4)
    other = alice.run(name="other")
    tick()
    assert Job.objects.get(evaluates=TASK).stop_asked_at is not None
    for _ in range(3):
        machine.beat()
        tick()
    assert alice.see(other["id"])["status"] == "STARTING"
    assert alice.see(machine.run["id"])["status"] == "RUNNING"
    assert not Job.objects.filter(evaluates=TASK).exclude(state="exited").exists(), "no other took its place"
    said = [event["message"] for event in alice.events(machine.run["id"]) if event["kind"] == "evaluator"]
    assert said[-1] == "evaluator-1 stops: a run needs its slot"


def test_the_queue_and_a_request_for_engines_go_before_it(
    alice: Any, node: Any, start: Any, tick: Any, tell: Any
) -> None:
    machine = node(slots=3)
    run = start(machine, **EVALUATED)
    alice.post(f"/runs/{run['id']}/runtime", {"changes": {"rollout": {"engines": 2}}})
    tell(machine)
    tick()
    assert set(Job.objects.filter(kind="rollout").values_list("name", flat=True)) == {
        "rollout-0",
        "rollout-1",
    }


def test_its_slot_counts_against_the_teams_limit(
    alice: Any, node: Any, start: Any, tick: Any, tell: Any
) -> None:
    machine = node(slots=6)
    start(machine, **EVALUATED)
    alice.call("PUT", f"/pools/default/teams/{alice.project.team_id}/quota", {"limit_slots": 2})
    tell(machine)
    tick()
    assert held() == {"cpu-0", "cpu-1"}
    alice.call("PUT", f"/pools/default/teams/{alice.project.team_id}/quota", {"limit_slots": 4})
    tick()
    assert held() == {"cpu-0", "cpu-1", "cpu-2"}
    other = alice.run(name="other")  # fits the node, and the team only without the evaluator
    tick()
    for _ in range(3):
        machine.beat()
        tick()
    assert alice.see(other["id"])["status"] == "STARTING"


def test_a_run_that_waits_for_its_teams_limit_does_not_wait_for_one_evaluator_after_the_other(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node(slots=8)
    runs = [start(machine, name=name, **EVALUATED)["id"] for name in ("one", "two")]
    alice.call("PUT", f"/pools/default/teams/{alice.project.team_id}/quota", {"limit_slots": 6})
    Attempt.objects.filter(run=runs[0]).update(evaluator_wanted=TASK)
    tick()
    assert Job.objects.filter(evaluates=TASK).count() == 1
    third = alice.run(name="third")["id"]
    Attempt.objects.filter(run=runs[1]).update(evaluator_wanted=TASK)
    for _ in range(3):
        tick()
        machine.beat()
    assert alice.see(third)["status"] == "STARTING"
    assert Job.objects.filter(evaluates=TASK).count() == 1, "none came for the other run"


@pytest.mark.parametrize("reason", [EndReason.ROLLOUT_CRASH_LOOP, EndReason.MODEL_INVALID, None])
def test_one_that_dies_ends_nothing_and_another_comes_a_few_times(
    alice: Any, evaluated: Any, tick: Any, reason: EndReason | None
) -> None:
    machine = evaluated()
    for _ in range(5):
        for job_id in Job.objects.filter(evaluates=TASK).exclude(state="exited").values_list("pk", flat=True):
            machine.exit(job_id, reason, code=1)
        settle(machine, tick)
    assert Job.objects.filter(evaluates=TASK).count() == 3, "not for ever"
    assert held() == {"cpu-0", "cpu-1"}
    run = alice.see(machine.run["id"])
    assert (run["status"], run["attempt_number"]) == ("RUNNING", 1)


def test_the_number_of_engines_changes_without_it(alice: Any, evaluated: Any, tick: Any) -> None:
    machine = evaluated(slots=4)
    path = f"/runs/{machine.run['id']}/runtime"
    alice.post(path, {"changes": {"rollout": {"engines": 2}}})
    tick()
    machine.beat()
    assert Job.objects.get(name="rollout-2").slots == ["cpu-3"], "an evaluator is none of the two"
    alice.post(path, {"changes": {"rollout": {"engines": 1}}})
    assert Job.objects.get(name="rollout-2").stop_asked_at is not None
    assert Job.objects.get(evaluates=TASK).stop_asked_at is None


def test_a_next_attempt_has_none_of_the_last_ones(alice: Any, evaluated: Any, tick: Any) -> None:
    machine = evaluated()
    machine.beat()
    machine.exit(machine.job("controller"), EndReason.CONTROLLER_CRASHED, code=1, shipped=10)
    settle(machine, tick)
    assert alice.see(machine.run["id"])["attempt_number"] == 2
    assert Job.objects.get(evaluates=TASK).state == "exited"
    assert Attempt.objects.get(number=2).evaluator_wanted == ""
    assert held() == {"cpu-0", "cpu-1"}


def evaluators() -> list[tuple[int, str, str]]:
    found = Job.objects.filter(evaluates__gt="").order_by("pk")
    return list(found.values_list("attempt__number", "evaluates", "state"))


def store(machine: Any, commit_checkpoint: Any, *, step: int) -> None:
    attempt = Attempt.objects.get(number=1)
    commit_checkpoint(machine.run["id"], attempt.pk, step=step)
    machine.upload_checkpoint(attempt.pk, attempt.epoch, step=step)


def test_it_goes_with_a_run_that_pauses_and_the_next_attempt_gets_one_of_its_own(
    alice: Any, evaluated: Any, tick: Any, tell: Any, commit_checkpoint: Any
) -> None:
    """The wish stays in the last document; nobody comes for it any more."""
    machine = evaluated()
    machine.beat()
    assert alice.post(f"/runs/{machine.run['id']}/pause").status_code == 202
    tick()
    assert evaluators() == [(1, TASK, "running")], "the trainer's checkpoint comes first"
    store(machine, commit_checkpoint, step=22)
    for _ in range(7):
        machine.beat()
        machine.ship_all()
        tick(9)
    assert alice.see(machine.run["id"])["status"] == "PAUSED"
    assert (evaluators(), held()) == ([(1, TASK, "exited")], set())
    alice.post(f"/runs/{machine.run['id']}/resume")
    tick()
    machine.beat()
    machine.beat()
    assert alice.see(machine.run["id"])["status"] == "RUNNING"
    tick()
    assert evaluators() == [(1, TASK, "exited")], "what the attempt before wanted is nobody's wish"
    tell(machine, "step-22-v22")
    tick()
    machine.beat()
    machine.beat()
    assert evaluators() == [(1, TASK, "exited"), (2, "step-22-v22", "running")]
    assert held() == {"cpu-0", "cpu-1", "cpu-2"}


def test_it_leaves_a_node_that_is_drained_with_its_run(
    alice: Any, node: Any, evaluated: Any, tick: Any, tell: Any, commit_checkpoint: Any
) -> None:
    leaving = evaluated(slots=4)
    staying = node(name="staying", slots=3)
    alice.post(f"/pool/nodes/{leaving.node_id}/drain")
    tell(leaving, "step-40-v40")  # and it gets no other there
    tick()
    store(leaving, commit_checkpoint, step=22)
    settle(leaving, tick)
    assert evaluators() == [(1, TASK, "exited")]
    assert not Lease.objects.filter(slot__node=leaving.node_id, released_at=None).exists()
    staying.beat()
    staying.beat()
    assert alice.see(leaving.run["id"])["status"] == "RUNNING"
    tell(staying, "step-22-v22")
    tick()
    staying.beat()
    staying.beat()
    assert evaluators() == [(1, TASK, "exited"), (2, "step-22-v22", "running")]
    assert Lease.objects.filter(slot__node=staying.node_id, released_at=None).count() == 3


def silence(tick: Any, *others: Any) -> None:
    for _ in range(10):
        for other in others:
            other.beat()
        tick(12)


def test_one_on_a_silent_node_is_waited_for_as_its_run_is(alice: Any, evaluated: Any, tick: Any) -> None:
    machine = evaluated(slots=4)
    machine.beat()
    silence(tick)
    assert alice.see(machine.run["id"])["conditions"] == ["UNRESPONSIVE"]
    assert evaluators() == [(1, TASK, "running")] and len(held()) == 3, (
        "no other comes, and its slot is not sold"
    )
    machine.beat()
    tick()
    assert alice.see(machine.run["id"])["conditions"] == []
    assert evaluators() == [(1, TASK, "running")] and len(held()) == 3


def test_a_run_that_moves_off_a_lost_node_gets_another_and_the_lost_slot_is_free_when_that_is_sure(
    alice: Any, node: Any, evaluated: Any, tick: Any, tell: Any, commit_checkpoint: Any
) -> None:
    lost = evaluated()
    lost.beat()
    store(lost, commit_checkpoint, step=20)
    other = node(name="other", slots=3)
    silence(tick, other)
    other.beat()
    assert alice.see(lost.run["id"])["attempt_number"] == 2
    there = Lease.objects.filter(slot__node=lost.node_id, released_at=None)
    assert there.count() == 3, "nobody knows whether its jobs are dead"
    tell(other)
    tick()
    other.beat()
    other.beat()
    assert evaluators() == [(1, TASK, "running"), (2, TASK, "running")]
    lost.beat()  # it answers: the old attempt is not named, so it ends those jobs
    lost.beat()
    tick()
    assert not there.exists()
    assert Lease.objects.filter(slot__node=other.node_id, released_at=None).count() == 3
    assert alice.see(lost.run["id"])["status"] == "RUNNING"


def test_it_goes_with_a_run_that_is_cancelled(alice: Any, evaluated: Any, tick: Any) -> None:
    machine = evaluated()
    assert alice.post(f"/runs/{machine.run['id']}/cancel").status_code in (200, 202)
    settle(machine, tick)
    assert alice.see(machine.run["id"])["status"] == "STOPPED"
    assert held() == set()


def test_a_cordoned_node_gets_no_evaluator(alice: Any, node: Any, start: Any, tick: Any, tell: Any) -> None:
    machine = node(slots=3)
    start(machine, **EVALUATED)
    tell(machine)
    Node.objects.update(intent="CORDONED")
    tick()
    assert not Job.objects.filter(evaluates__gt="").exists()


def test_a_controller_waits_for_none_where_none_can_come(node: Any, start: Any) -> None:
    """Its node is filled by the run, or there is nothing to evaluate."""
    machine = node(slots=2)
    start(machine, **EVALUATED)
    assert not machine.reply.attempts[0].evaluators
    wider = node(name="node-2", slots=3)
    start(wider)
    assert not wider.reply.attempts[0].evaluators


@pytest.mark.parametrize(
    "wanted",
    [
        None,
        7,
        ["step-2-v2"],
        "step-2",
        "-v2",
        "step-2-vx",
        "x" * 200 + "-v2",
        "step-2-v" + "2" * 40,
    ],
)
def test_a_malformed_request_is_ignored(
    alice: Any, node: Any, start: Any, tick: Any, tell: Any, wanted: Any
) -> None:
    machine = node(slots=3)
    run = start(machine, **EVALUATED)
    tell(machine, wanted)
    tick()
    assert Attempt.objects.get().evaluator_wanted == ""
    assert Run.objects.get(pk=run["id"]).status == "RUNNING" and held() == {"cpu-0", "cpu-1"}


def test_only_a_controller_may_request(alice: Any, node: Any, start: Any, tick: Any) -> None:
    """A trainer may run code of its project; that of a run without engines would have none to count from."""
    machine = node(slots=3)
    start(machine, **EVALUATED)
    body = encode(StateSnapshot(name="pipeline", value={"evaluator_wanted": TASK}))
    outbox.ingest_outbox(machine.job("trainer"), "main-0.jsonl", offset=0, body=body)
    tick()
    assert Attempt.objects.get().evaluator_wanted == ""
    assert held() == {"cpu-0", "cpu-1"}
