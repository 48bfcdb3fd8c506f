"""The control plane, or a part of it, away while runs are submitted, run and stopped."""

from __future__ import annotations

import time

import pytest

from tests.support import small_runs
from tests.support.small_runs import Inputs
from tests.support.stack import Stack, until

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1500)]

AWAY_SECONDS = 60


def test_a_minute_without_control_plane_costs_nothing(stack: Stack, inputs: Inputs) -> None:
    """Also: submitted while no worker lives, the run waits; stopped while it starts, it stops."""
    node = stack.add_node("only", slots=2)
    client = stack.client()

    stack.plane.kill_part("worker")
    run_id = client.runs.create(small_runs.spec(inputs, steps=150)).id
    time.sleep(5)
    assert client.runs.get(run_id).status == "QUEUED"
    stack.plane.start_part("worker")
    small_runs.wait_for_status(stack, client, run_id, "STARTING", "RUNNING", seconds=60)

    small_runs.wait_for_step(stack, run_id, 3)
    pids = {name: record.job_pid for name, record in node.supervised().items()}
    step = small_runs.last_step([node])
    stack.control_plane_dies()
    time.sleep(AWAY_SECONDS)
    assert small_runs.last_step([node]) > step, "training stood still without a control plane"
    assert {name: record.job_pid for name, record in node.supervised().items()} == pids
    stack.control_plane_returns()
    run = small_runs.wait_for_end(stack, client, run_id, seconds=small_runs.BOOT_SECONDS + 120)
    assert run.status == "SUCCEEDED", (run.reason, run.reason_message, stack.said())
    assert run.attempt_number == 1
    small_runs.assert_every_point_is_stored_once(stack)
    small_runs.assert_nothing_is_left(stack)

    starting_id = client.runs.create(small_runs.spec(inputs, steps=50)).id
    small_runs.wait_for_status(stack, client, starting_id, "STARTING", "RUNNING", seconds=60)
    client.runs.stop(starting_id)
    run = small_runs.wait_for_end(stack, client, starting_id, seconds=60)
    assert (run.status, run.reason) == ("STOPPED", "stopped_by_user")
    small_runs.assert_nothing_is_left(stack)
    until(lambda: not stack.nodes["only"].supervised(), seconds=60, what="no supervisor")
