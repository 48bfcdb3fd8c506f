"""A node that dies with everything on it, and slots that are too few."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import small_runs
from tests.support.small_runs import Inputs, upload_inputs
from tests.support.stack import Stack, until

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1500)]


def test_a_run_goes_on_elsewhere_when_its_node_dies(new_stack: Callable[..., Stack], model: Path) -> None:
    """Two nodes without a common path: what the second one continues from can only come from the store."""
    stack = new_stack(OOLONG_NODE_LEASE_SECONDS="15")
    inputs = upload_inputs(stack, model)
    steps = 30
    nodes = {name: stack.add_node(name, slots=2) for name in ("left", "right")}
    client = stack.client()
    run_id = client.runs.create(small_runs.spec(inputs, steps=steps)).id
    until(
        lambda: (client.runs.get(run_id).latest_checkpoint or None) is not None, seconds=small_runs.BOOT_SECONDS,
        what="a stored checkpoint", said=stack.said,
    )  # fmt: skip
    (first,) = client.runs.attempts(run_id)
    assert first.node is not None
    dying = nodes.pop(first.node.name)
    (surviving,) = nodes.values()
    assert not list(surviving.data.glob("attempts/*"))
    stored = client.runs.get(run_id).latest_checkpoint
    assert stored is not None
    dying.kill()
    assert not dying.job_processes()

    until(lambda: client.runs.get(run_id).attempt_number == 2, seconds=60, what="attempt 2", said=stack.said)
    _, second = sorted(client.runs.attempts(run_id), key=lambda attempt: attempt.number)
    assert second.node is not None and second.node.name == surviving.name
    run = small_runs.wait_for_end(stack, client, run_id, seconds=small_runs.BOOT_SECONDS + 60)
    assert run.status == "SUCCEEDED", (run.reason, run.reason_message, stack.said())
    assert small_runs.steps_of(surviving, second.id)[0] >= stored.step + 1
    small_runs.assert_balanced(run)
    small_runs.assert_no_gap_and_no_repeat(stack, run)
    held = stack.rows(
        "SELECT DISTINCT n.name FROM fleet_lease l JOIN fleet_slot s ON s.id = l.slot_id "
        "JOIN fleet_node n ON n.id = s.node_id WHERE l.released_at IS NULL"
    )
    assert held == [(dying.name,)], "the slots of a silent node are not sold again before it is known dead"

    dying.start()  # the machine is back: its agent finds no job alive, says so, and its slots are free
    small_runs.assert_nothing_is_left(stack)


def test_an_engine_on_another_node_generates_for_the_run_and_its_nodes_loss_costs_no_group(
    new_stack: Callable[..., Stack], model: Path
) -> None:
    """Two nodes without a common path, at addresses of their own: weights and groups travel between them with TLS."""
    stack = new_stack(OOLONG_NODE_LEASE_SECONDS="15")
    inputs = upload_inputs(stack, model)
    home = stack.add_node("home", slots=2, peer_address="127.0.0.2")
    client = stack.client()
    run_id = client.runs.create(small_runs.spec(inputs, steps=60)).id
    small_runs.wait_for_status(stack, client, run_id, "RUNNING", seconds=small_runs.BOOT_SECONDS)
    away = stack.add_node("away", slots=1, peer_address="127.0.0.3")
    client.runs.change(run_id, changes={"rollout": {"engines": 2}})

    def outputs() -> str:
        logs = away.data.glob("attempts/*/supervision/rollout-1-*/output.log")
        return "".join(log.read_text(errors="replace") for log in logs)

    until(
        lambda: outputs().count("MB fetched in") >= 2, seconds=small_runs.BOOT_SECONDS,
        what="two versions are fetched", said=stack.said,
    )  # fmt: skip
    (joined,) = [job for job in client.runs.jobs(run_id) if job.name == "rollout-1"]
    assert (joined.node.name, joined.state) == ("away", "running")
    assert len(list(away.data.glob("attempts/*/weights/v*"))) <= 2, "older versions are removed"
    until(
        lambda: any(
            (line.values.get("engine/running_requests") or 0) > 0
            for job, directory in away.jobs()
            for line in small_runs.points_of(directory)
        ),
        seconds=60, what="it generates", said=stack.said,
    )  # fmt: skip
    step = small_runs.last_step([home])
    away.kill()
    small_runs.wait_for_step(stack, run_id, step + 5, seconds=120)

    run = small_runs.wait_for_end(stack, client, run_id, seconds=small_runs.BOOT_SECONDS + 120)
    assert (run.status, run.attempt_number) == ("SUCCEEDED", 1), (run.reason_message, stack.said())
    small_runs.assert_balanced(run)
    small_runs.assert_engine_matches_trainer(run)
    small_runs.assert_no_gap_and_no_repeat(stack, run)
    away.start()  # the machine is back: its agent finds no job alive, says so, and its slot is free
    small_runs.assert_nothing_is_left(stack)


def test_a_trainer_over_two_nodes_continues_from_the_last_checkpoint_when_one_of_them_dies(
    new_stack: Callable[..., Stack], model: Path
) -> None:
    """Three nodes at addresses of their own and without a common path. None has three slots, so the two ranks are on
    two of them, and after the death of the second one on the third."""
    stack = new_stack(OOLONG_NODE_LEASE_SECONDS="15")
    inputs = upload_inputs(stack, model)
    nodes = {
        name: stack.add_node(name, slots=slots, peer_address=f"127.0.0.{number}")
        for number, (name, slots) in enumerate([("head", 2), ("other", 1), ("spare", 1)], start=2)
    }
    client = stack.client()
    trainer = {"num_ranks": 2, "total_train_steps": 30, "groups_per_step": 8, "minibatches": 2}
    wanted = small_runs.spec(inputs, steps=30, trainer=trainer, placement={"nodes": 2})
    run_id = client.runs.create(wanted).id
    until(
        lambda: (client.runs.get(run_id).latest_checkpoint or None) is not None, seconds=small_runs.BOOT_SECONDS,
        what="a stored checkpoint", said=stack.said,
    )  # fmt: skip
    stored = client.runs.get(run_id).latest_checkpoint
    assert stored is not None
    where = {job.name: job.node.name for job in client.runs.jobs(run_id) if job.kind == "trainer"}
    assert where == {"trainer": "head", "trainer-1": "other"}
    dying = nodes["other"]
    dying.kill()

    until(lambda: client.runs.get(run_id).attempt_number == 2, seconds=90, what="attempt 2", said=stack.said)
    first, second = sorted(client.runs.attempts(run_id), key=lambda attempt: attempt.number)
    assert first.reason == "node_lost", (first.reason, stack.said())
    run = small_runs.wait_for_end(stack, client, run_id, seconds=small_runs.BOOT_SECONDS + 120)
    assert run.status == "SUCCEEDED", (run.reason, run.reason_message, stack.said())
    assert small_runs.steps_of(nodes["head"], second.id)[0] >= stored.step + 1
    small_runs.assert_balanced(run)
    small_runs.assert_engine_matches_trainer(run)
    small_runs.assert_no_gap_and_no_repeat(stack, run)
    dying.start()  # the machine is back: its agent finds no job alive, says so, and its slot is free
    small_runs.assert_nothing_is_left(stack)


def test_two_trainer_ranks(stack: Stack, inputs: Inputs) -> None:
    stack.add_node("three", slots=3)
    client = stack.client()
    trainer = {"num_ranks": 2, "total_train_steps": 8, "groups_per_step": 8, "minibatches": 2}
    run_id = client.runs.create(small_runs.spec(inputs, steps=8, trainer=trainer)).id
    run = small_runs.wait_for_end(stack, client, run_id, seconds=small_runs.BOOT_SECONDS + 60)
    assert run.status == "SUCCEEDED", (run.reason, run.reason_message, stack.said())
    small_runs.assert_balanced(run)
    small_runs.assert_engine_matches_trainer(run)
    small_runs.assert_no_gap_and_no_repeat(stack, run)
    small_runs.assert_every_point_is_stored_once(stack)
    small_runs.assert_nothing_is_left(stack)
