"""Every kind of job killed once in one run; then a run of two ranks stopped in the middle."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support import small_runs
from tests.support.small_runs import Inputs
from tests.support.stack import Node, Stack, until

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1500)]


def kill(node: Node, job: str) -> None:
    os.kill(node.supervised()[job].job_pid, signal.SIGKILL)


def test_reward_service_and_worker_are_restarted_in_place_and_a_lost_controller_costs_an_attempt(
    stack: Stack, inputs: Inputs
) -> None:
    node = stack.add_node("only", slots=2)
    client = stack.client()
    run_id = client.runs.create(small_runs.spec(inputs, steps=100)).id

    def incarnation(job: str) -> int:
        return int(
            stack.value(
                "SELECT j.incarnation FROM runs_job j JOIN runs_attempt a ON a.id = j.attempt_id "
                "WHERE a.run_id = %s AND j.name = %s ORDER BY a.number DESC LIMIT 1",
                run_id, job,
            )
        )  # fmt: skip

    small_runs.wait_for_step(stack, run_id, 3)
    kill(node, "reward")
    until(lambda: incarnation("reward") == 1, seconds=60, what="the reward service is back", said=stack.said)
    small_runs.wait_for_step(stack, run_id, small_runs.last_step([node]) + 8)

    (engine,) = node.engines().values()
    kill(node, "rollout-0")
    until(lambda: incarnation("rollout-0") == 1, seconds=60, what="the worker is back", said=stack.said)
    assert engine not in node.job_processes(), "an engine outlived its worker"
    # More steps than the gate had groups for: the new engine made some of them.
    small_runs.wait_for_step(
        stack, run_id, small_runs.last_step([node]) + 12, seconds=small_runs.BOOT_SECONDS
    )
    assert client.runs.get(run_id).attempt_number == 1

    kill(node, "controller")
    until(lambda: client.runs.get(run_id).attempt_number == 2, seconds=60, what="attempt 2", said=stack.said)
    run = small_runs.wait_for_end(stack, client, run_id, seconds=small_runs.BOOT_SECONDS + 90)
    assert run.status == "SUCCEEDED", (run.reason, run.reason_message, stack.said())
    assert run.attempt_number == 2
    small_runs.assert_balanced(run)
    small_runs.assert_lost_tokens_are_counted(stack, run)
    small_runs.assert_engine_matches_trainer(run)
    small_runs.assert_no_gap_and_no_repeat(stack, run)
    small_runs.assert_every_point_is_stored_once(stack)
    small_runs.assert_nothing_is_left(stack)


def test_a_lora_run_of_two_ranks_stops_with_a_checkpoint_that_another_run_starts_from(
    stack: Stack, inputs: Inputs
) -> None:
    """The other run trains all weights, from the merged ones."""
    stack.add_node("three", slots=3)
    client = stack.client()
    trainer = {"num_ranks": 2, "total_train_steps": 500}
    lora = {"lora": {"rank": 4}}
    run_id = client.runs.create(small_runs.spec(inputs, steps=500, trainer=trainer, model=lora)).id
    small_runs.wait_for_step(stack, run_id, 7)
    client.runs.stop(run_id)
    run = small_runs.wait_for_end(stack, client, run_id, seconds=60)
    assert (run.status, run.reason) == ("STOPPED", "stopped_by_user")
    assert run.latest_checkpoint is not None and run.latest_checkpoint.step == run.train_step >= 7
    small_runs.assert_balanced(run)
    small_runs.assert_engine_matches_trainer(run)
    small_runs.assert_nothing_is_left(stack)

    document = small_runs.spec(inputs, steps=4)
    document["model"] = {"checkpoint": run.latest_checkpoint.id}
    next_id = client.runs.create(document).id
    after = small_runs.wait_for_end(stack, client, next_id, seconds=small_runs.BOOT_SECONDS + 60)
    assert after.status == "SUCCEEDED", (after.reason, after.reason_message, stack.said())
    small_runs.assert_engine_matches_trainer(after)
    small_runs.assert_nothing_is_left(stack)
