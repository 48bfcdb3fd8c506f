"""Nodes that are drained: every run leaves before the deadline or is stopped at it, and none fails."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from control_plane.accounts.models import AuditEntry
from control_plane.fleet.models import Lease, Node
from control_plane.runs import attempt_status
from control_plane.runs.models import Attempt, Job, Run

MINUTES = 60
EVALUATION = {"kind": "eval", "dataset": {"version": "sums@1", "split": "eval"}, "evaluation": {"prompts": 8}}


def drain(alice: Any, machine: Any, minutes: float | None = None) -> Any:
    body = {} if minutes is None else {"deadline_seconds": int(minutes * MINUTES)}
    reply = alice.post(f"/pool/nodes/{machine.node_id}/drain", body)
    assert reply.status_code == 200, reply.content
    return reply.json()


def pass_minutes(minutes: float, tick: Any, *machines: Any) -> None:
    step = 24 if machines else 12  # of a silent node, longer gaps count as an outage of the control plane
    for _ in range(math.ceil(minutes * MINUTES / step)):
        for machine in machines:
            machine.beat()
            machine.ship_all()
        tick(step)


def attempts_of(run: Any) -> list[tuple[int, str, str]]:
    """Number, status and reason."""
    found = Attempt.objects.filter(run_id=run["id"]).order_by("number")
    return list(found.values_list("number", "status", "reason"))


def playground(alice: Any, machine: Any, tick: Any) -> Any:
    """A playground that runs on the machine."""
    opened = alice.post("/playgrounds", {"models": [{"base_model": "tiny"}]})
    assert opened.status_code == 201, opened.content
    tick()
    machine.beat()
    machine.beat()
    run = alice.see(Run.objects.get(kind="playground").pk)
    assert run["status"] == "RUNNING"
    return run


def leaving(alice: Any) -> list[tuple[str, str]]:
    return [(one["run_name"], one["stage"]) for one in alice.get("/pool").json()["leaving"]]


def never_failed(run: Any) -> bool:
    return not Run.objects.get(pk=run["id"]).events.filter(data__after="FAILED").exists()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The trainers of this node do not stop when they are asked to, until their grace period is a cancellation's."""

    def make(machine: Any) -> Any:
        follow = type(machine)._follow

        def _follow(reply: Any) -> None:
            stopping = {
                job.job_id
                for attempt in reply.attempts
                for job in attempt.jobs
                if job.stop and job.grace_seconds > 5
            }
            before = {job: machine.jobs[job] for job in stopping if job in machine.jobs}
            follow(machine, reply)
            machine.jobs.update(before)

        monkeypatch.setattr(machine, "_follow", _follow)
        return machine

    return make


# --- before the deadline


@pytest.mark.parametrize("minutes", [None, 30])
def test_a_run_with_a_trainer_saves_at_once_and_returns_to_the_queue_as_preempted(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any, minutes: float | None
) -> None:
    machine = node()
    run = start(machine)
    drain(alice, machine, minutes)
    assert leaving(alice) == [("a run", "stopping")], "already before the next tick"
    tick()
    assert leaving(alice) == [("a run", "stopping")]
    first = Attempt.objects.get(run_id=run["id"])
    commit_checkpoint(run["id"], first.pk, step=5)
    for _ in range(3):
        machine.beat()
        machine.ship_all()
        tick(10)
    assert leaving(alice) == [("a run", "uploading")]
    assert alice.get("/pool").json()["nodes"][0]["status"] == "DRAINING", "its checkpoint is not stored yet"
    machine.upload_checkpoint(first.pk, first.epoch, step=5)
    machine.beat()
    tick(10)
    assert (alice.see(run["id"])["status"], attempts_of(run)) == ("QUEUED", [(1, "ENDED", "preempted")])
    assert (leaving(alice), alice.get("/pool").json()["nodes"][0]["status"]) == ([], "DRAINED")
    other = node("other")
    tick(90)
    second = Attempt.objects.get(run_id=run["id"], number=2)
    assert second.node_id == other.node_id
    assert second.resume_checkpoint is not None and second.resume_checkpoint.step == 5


def test_a_drained_run_never_fails_however_often_it_moves(
    alice: Any, node: Any, start: Any, tick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_status, "FREE_ATTEMPTS", 2)
    machine = node()
    run = start(machine, budget={"max_attempts": 1})
    for _ in range(4):
        drain(alice, machine)
        pass_minutes(2, tick, machine)
        waiting = Run.objects.get(status="QUEUED")
        assert waiting.not_before == waiting.status_at, "it waits as if its attempts had failed"
        alice.post(f"/pool/nodes/{machine.node_id}/uncordon")
        pass_minutes(2, tick, machine)
    assert alice.see(run["id"])["status"] == "RUNNING"
    assert {reason for _, _, reason in attempts_of(run)} == {"", "preempted"}


def test_an_evaluation_may_finish_until_the_deadline_and_then_starts_over_elsewhere(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine, **EVALUATION)
    shown = drain(alice, machine, 5)
    deadline = Node.objects.get().drain_deadline
    assert deadline is not None and shown["drain_deadline"].startswith(f"{deadline:%Y-%m-%dT%H:%M}")
    pass_minutes(4, tick, machine)
    seen = alice.see(run["id"])
    assert (seen["status"], seen["conditions"]) == ("RUNNING", ["NODE_DRAINING"])
    assert leaving(alice) == [("a run", "staying")]
    assert f"the run may stay until {deadline:%Y-%m-%d %H:%M} UTC" in str(alice.events(run["id"]))
    pass_minutes(2, tick, machine)
    assert (alice.see(run["id"])["status"], attempts_of(run)) == ("QUEUED", [(1, "ENDED", "preempted")])
    other = node("other")
    tick(90)
    assert Attempt.objects.get(run_id=run["id"], number=2).node_id == other.node_id


def test_an_evaluation_that_finishes_before_the_deadline_succeeds(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine, **EVALUATION)
    Run.objects.filter(pk=run["id"]).update(summary={"evaluation": {"mean": 1.0}})
    drain(alice, machine, 5)
    pass_minutes(2, tick, machine)
    machine.exit(machine.job("controller"), "completed")
    pass_minutes(2, tick, machine)
    assert alice.see(run["id"])["status"] == "SUCCEEDED"
    assert alice.get("/pool").json()["nodes"][0]["status"] == "DRAINED"


@pytest.mark.parametrize("minutes", [None, 5])
def test_a_playground_ends_at_once_or_at_the_deadline(
    alice: Any, node: Any, start: Any, tick: Any, minutes: float | None
) -> None:
    machine = node()
    run = playground(alice, machine, tick)
    drain(alice, machine, minutes)
    pass_minutes(1, tick, machine)
    assert alice.see(run["id"])["status"] == ("RUNNING" if minutes else "STOPPED")
    pass_minutes(6, tick, machine)
    seen = alice.see(run["id"])
    assert (seen["status"], seen["reason"], seen["fault"]) == ("STOPPED", "preempted", "none")


def test_a_run_that_is_starting_goes_at_once(alice: Any, node: Any, tick: Any) -> None:
    machine = node(silent_about_new=True)
    run = alice.run()
    tick()
    assert alice.see(run["id"])["status"] == "STARTING"
    drain(alice, machine, 30)
    machine.silent_about_new = False
    pass_minutes(3, tick, machine)
    assert (alice.see(run["id"])["status"], attempts_of(run)) == ("QUEUED", [(1, "ENDED", "preempted")])


# --- at the deadline


def test_a_trainer_that_does_not_save_in_time_is_stopped_at_the_deadline_and_the_run_is_not_failed(
    alice: Any, node: Any, start: Any, tick: Any, slow: Any
) -> None:
    machine = slow(node())
    run = start(machine)
    drain(alice, machine, 5)
    pass_minutes(4, tick, machine)
    assert (alice.see(run["id"])["status"], leaving(alice)) == ("RUNNING", [("a run", "stopping")])
    pass_minutes(2, tick, machine)
    assert (alice.see(run["id"])["status"], attempts_of(run)) == ("QUEUED", [(1, "ENDED", "preempted")])
    assert set(Job.objects.values_list("grace_seconds", flat=True)) == {5.0}
    assert alice.get("/pool").json()["nodes"][0]["status"] == "DRAINED"


def test_a_checkpoint_whose_upload_the_deadline_cuts_off_makes_the_run_start_over(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    machine = node()
    run = start(machine)
    drain(alice, machine, 5)
    tick()
    commit_checkpoint(run["id"], Attempt.objects.get().pk, step=5)
    pass_minutes(6, tick, machine)
    assert leaving(alice) == [("a run", "uploading")], "the upload may end as long as the node is there"
    pass_minutes(4, tick)  # the operator turned it off
    assert (alice.see(run["id"])["status"], attempts_of(run)) == ("QUEUED", [(1, "ENDED", "preempted")])
    assert never_failed(run)


def test_a_node_that_is_lost_during_the_drain_loses_its_runs_at_the_deadline_at_the_latest(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine, **EVALUATION)
    drain(alice, machine, 10)
    pass_minutes(9, tick)
    assert alice.see(run["id"])["conditions"] == ["NODE_DRAINING", "UNRESPONSIVE"], (
        "it may come back until then"
    )
    pass_minutes(2, tick)
    assert (alice.see(run["id"])["status"], attempts_of(run)) == ("QUEUED", [(1, "ENDED", "preempted")])
    assert Lease.objects.filter(released_at=None).exists(), "its jobs may still be running"
    assert alice.get("/pool").json()["nodes"][0]["status"] == "UNRESPONSIVE"
    pass_minutes(2, tick, machine)
    assert not Lease.objects.filter(released_at=None).exists()
    assert alice.get("/pool").json()["nodes"][0]["status"] == "DRAINED"


def test_a_playground_on_a_node_that_is_lost_during_the_drain_ends(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = playground(alice, machine, tick)
    drain(alice, machine, 10)
    pass_minutes(11, tick)
    seen = alice.see(run["id"])
    assert (seen["status"], seen["reason"]) == ("STOPPED", "preempted")


def test_a_run_that_pauses_too_slowly_is_stopped_at_the_deadline_and_is_paused(
    alice: Any, node: Any, start: Any, tick: Any, slow: Any
) -> None:
    machine = slow(node())
    run = start(machine)
    alice.post(f"/runs/{run['id']}/pause")
    drain(alice, machine, 5)
    pass_minutes(4, tick, machine)
    assert alice.see(run["id"])["status"] == "PAUSING"
    pass_minutes(2, tick, machine)
    assert alice.see(run["id"])["status"] == "PAUSED"


# --- changes of a drain


def test_a_second_drain_sets_an_earlier_deadline_and_one_without_leaves_it(
    alice: Any, node: Any, start: Any, tick: Any, clock: Any
) -> None:
    machine = node()
    run = start(machine, **EVALUATION)
    drain(alice, machine, 60)
    drain(alice, machine, 10)
    assert drain(alice, machine)["drain_deadline"] is not None
    assert Node.objects.get().drain_deadline == clock.now + timedelta(minutes=10)
    pass_minutes(11, tick, machine)
    assert alice.see(run["id"])["status"] == "QUEUED"


def test_a_cancelled_drain_leaves_what_was_not_asked_to_leave(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node(slots=4)
    training, evaluation = start(machine), start(machine, **EVALUATION)
    drain(alice, machine, 10)
    tick()
    back = alice.post(f"/pool/nodes/{machine.node_id}/uncordon").json()
    assert (back["status"], back["drain_deadline"]) == ("READY", None)
    pass_minutes(15, tick, machine)
    seen = alice.see(evaluation["id"])
    assert (seen["status"], seen["conditions"], seen["attempt_number"]) == ("RUNNING", [], 1)
    assert attempts_of(training) == [(1, "ENDED", "preempted"), (2, "RUNNING", "")]


def test_the_deadline_outlives_an_outage_of_the_control_plane(
    alice: Any, node: Any, start: Any, tick: Any, clock: Any
) -> None:
    machine = node()
    run = start(machine, **EVALUATION)
    drain(alice, machine, 10)
    clock.forward(20 * MINUTES)  # no tick, no heartbeat
    pass_minutes(1, tick, machine)
    assert (alice.see(run["id"])["status"], attempts_of(run)) == ("QUEUED", [(1, "ENDED", "preempted")])


@pytest.mark.parametrize("seconds", [0, -5, 31 * 86_400, "soon"])
def test_an_impossible_deadline_is_rejected(alice: Any, node: Any, seconds: Any) -> None:
    machine = node()
    reply = alice.post(f"/pool/nodes/{machine.node_id}/drain", {"deadline_seconds": seconds})
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, "/deadline_seconds")
    assert Node.objects.get().intent == "ACTIVE"


def test_the_deadline_is_in_the_audit_log(alice: Any, node: Any) -> None:
    machine = node()
    shown = drain(alice, machine, 10)
    entry = AuditEntry.objects.filter(action="node.intent").latest("pk")
    assert (entry.data["after"], entry.data["deadline"]) == ("DRAINING", shown["drain_deadline"])


# --- what people see


def test_another_teams_run_on_the_node_has_no_name(
    alice: Any, person: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    start(machine, **EVALUATION)
    drain(alice, machine, 10)
    tick()
    bob = person("bob", team="blue")
    (one,) = bob.get("/pool").json()["leaving"]
    assert (one["run_id"], one["run_name"], one["stage"]) == ("", "another team's run", "staying")


def test_the_command_drains_with_a_deadline_and_lists_who_is_left(
    alice: Any, oolong: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine, **EVALUATION)
    wrong = oolong("node", "drain", machine.node_id, "--deadline", "soon")
    assert wrong.code == 2 and "30m" in wrong.err
    assert oolong("node", "drain", machine.node_id, "--deadline", "30m").out.startswith(
        "DRAINING until 2026-01-01"
    )
    tick()
    listed = oolong("node", "list").out
    assert run["id"] in listed and "staying" in listed
