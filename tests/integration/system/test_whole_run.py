"""One long real run through one fault after the other, and a second one that waits for its slots."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support import small_runs
from tests.support.small_runs import Inputs
from tests.support.stack import Stack, until

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1800)]

STEPS = 60
AWAY_SECONDS = 20


def test_a_run_goes_through_one_fault_after_the_other(stack: Stack, inputs: Inputs, tmp_path: Path) -> None:
    began = time.monotonic()

    def say(text: str) -> None:
        print(
            f"{time.monotonic() - began:6.1f} s  step {small_runs.last_step([node]):3d}  {text}", flush=True
        )

    node = stack.add_node("only", slots=2, switches={"reward_fails": True})
    reward = {
        "name": "exact_match",
        "options": {"extract": "regex", "pattern": "[01]"},
        "max_error_rate": 1.0,
    }
    client = stack.client()
    run_id = client.runs.create(small_runs.spec(inputs, steps=STEPS, reward=reward)).id
    small_runs.wait_for_step(stack, run_id, 7)
    say("trains")

    os.kill(node.supervised()["trainer"].job_pid, signal.SIGKILL)
    say("trainer killed")
    until(lambda: client.runs.get(run_id).attempt_number == 2, seconds=120, what="attempt 2", said=stack.said)
    say("attempt 2")
    resumed = stack.value(
        "SELECT c.step FROM runs_attempt a JOIN checkpoints_checkpoint c ON c.id = a.resume_checkpoint_id "
        "WHERE a.run_id = %s AND a.number = 2",
        run_id,
    )
    assert resumed >= 5 and resumed % 5 == 0
    attempt = stack.value("SELECT id FROM runs_attempt WHERE run_id = %s AND number = 2", run_id)
    until(
        lambda: small_runs.steps_of(node, attempt), seconds=small_runs.BOOT_SECONDS, what="a step of attempt 2",
        said=stack.said,
    )  # fmt: skip
    say("trains again")

    second_id = client.runs.create(small_runs.sft_spec(inputs, steps=5000)).id
    third_id = client.runs.create(small_runs.spec(inputs, steps=6)).id
    waiting = until(
        lambda: client.runs.get(second_id).pending_reason, seconds=60, what="a reason for waiting"
    )
    assert "slot" in waiting, waiting
    cancelled = client.runs.cancel(third_id)
    assert (cancelled.status, cancelled.reason) == ("STOPPED", "cancelled_while_queued")

    before = {name: (record.pid, record.job_pid) for name, record in node.supervised().items()}
    engine = node.engines()["rollout-0"]
    node.kill_agent()
    say("agent killed")
    step = small_runs.last_step([node])
    small_runs.wait_for_step(stack, run_id, step + 2)
    node.start()
    until(lambda: client.runs.get(run_id).train_step > step + 1, seconds=120, what="the new agent ships")
    assert {name: (record.pid, record.job_pid) for name, record in node.supervised().items()} == before
    assert node.engines()["rollout-0"] == engine
    say("agent back")

    stack.control_plane_dies()
    stack.broker.wipe()
    stack.broker.kill()
    away_since, step = time.monotonic(), small_runs.last_step([node])
    os.kill(engine, signal.SIGKILL)
    say("control plane and engine killed")
    # The worker alone brings the engine back, to the current version, and training continues.
    small_runs.wait_for_step(stack, run_id, step + 8, seconds=small_runs.BOOT_SECONDS)
    assert node.engines().get("rollout-0") != engine  # a quick run may be over, and its engine gone
    say("trains with a new engine")
    time.sleep(max(0.0, AWAY_SECONDS - (time.monotonic() - away_since)))
    stack.broker.start()
    stack.control_plane_returns()
    say("control plane back, broker wiped")
    assert client.runs.get(run_id).attempt_number == 2

    run = small_runs.wait_for_end(stack, client, run_id, seconds=300)
    say(run.status)
    assert run.status == "SUCCEEDED", (run.reason, run.reason_message, stack.said())
    assert (run.attempt_number, run.train_step, run.policy_version) == (2, STEPS, STEPS)
    assert run.summary["rollout-0"]["restarts"] == 1
    steps = small_runs.steps_of(node, attempt)
    assert steps == list(range(resumed + 1, STEPS + 1)), "a step is missing, repeated or out of order"
    small_runs.assert_balanced(run)
    small_runs.assert_engine_matches_trainer(run)
    small_runs.assert_no_gap_and_no_repeat(stack, run, failing_rows=3)
    assert run.summary["controller"]["trajectories_spanning_versions"] > 0
    small_runs.assert_timeline_is_true(client, run)
    assert run.latest_checkpoint is not None and run.latest_checkpoint.step == STEPS
    small_runs.assert_checkpoint_is_whole(stack, client, run.latest_checkpoint.id, tmp_path)

    small_runs.wait_for_status(stack, client, second_id, "RUNNING", seconds=120)
    until(lambda: client.runs.get(second_id).train_step >= 2, seconds=180, what="it trains", said=stack.said)
    client.runs.stop(second_id)
    stopped = small_runs.wait_for_end(stack, client, second_id, seconds=180)
    say("second run stopped")
    assert (stopped.status, stopped.reason) == ("STOPPED", "stopped_by_user")
    assert stopped.latest_checkpoint is not None and stopped.latest_checkpoint.step == stopped.train_step

    fourth_id = client.runs.create(small_runs.spec(inputs, steps=5000)).id
    small_runs.wait_for_status(stack, client, fourth_id, "STARTING", "RUNNING", seconds=60)
    client.runs.stop(fourth_id)
    early = small_runs.wait_for_end(stack, client, fourth_id, seconds=180)
    say("fourth run stopped while it started, or just after")
    assert (early.status, early.reason) == ("STOPPED", "stopped_by_user")
    assert early.train_step == (early.latest_checkpoint.step if early.latest_checkpoint else 0)

    small_runs.assert_every_point_is_stored_once(stack)
    small_runs.assert_nothing_is_left(stack)
    say("end")
