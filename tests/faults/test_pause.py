"""A run that is changed, stopped, tried again, paused and resumed trains every group once, as if nothing had been."""

from __future__ import annotations

import pytest

from tests.support import small_runs
from tests.support.small_runs import Inputs
from tests.support.stack import Stack, until

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1500)]

STEPS = 30


def test_stop_retry_pause_and_resume_leave_no_gap_and_no_repeat(stack: Stack, inputs: Inputs) -> None:
    node = stack.add_node("only", slots=2)
    client = stack.client()
    first_id = client.runs.create(small_runs.spec(inputs, steps=STEPS)).id
    small_runs.wait_for_step(stack, first_id, 2)
    client.runs.change(
        first_id, changes={"staleness": {"max": 2}, "trainer": {"learning_rate": 5e-4}}, checkpoint=True
    )

    def said() -> list[str]:
        return [event.message for event in client.runs.events(first_id) if event.kind == "live_change"]

    until(lambda: len(said()) == 3, seconds=60, what="the jobs take the changes over", said=stack.said)
    assert any("max staleness is 2" in message for message in said()), said()
    assert any("the learning rate is 0.0005 starting with train step" in message for message in said()), (
        said()
    )
    (asked,) = [message for message in said() if "a checkpoint is taken after train step" in message]
    wanted = int(asked.split()[-1])
    small_runs.wait_for_step(stack, first_id, wanted + 2)
    assert client.runs.last_value(first_id, "optim/learning_rate") == pytest.approx(5e-4)
    # It is written behind the steps that follow.
    until(
        lambda: wanted in [checkpoint.step for checkpoint in client.checkpoints.list(run_id=first_id)],
        seconds=60, what=f"the checkpoint of step {wanted}", said=stack.said,
    )  # fmt: skip
    client.runs.stop(first_id)
    first = small_runs.wait_for_end(stack, client, first_id, seconds=60)
    assert first.status == "STOPPED" and first.latest_checkpoint is not None

    again_id = client.runs.retry(first_id).id
    until(
        lambda: client.runs.get(again_id).train_step >= first.train_step + 4,
        seconds=small_runs.BOOT_SECONDS + 60, what="four more steps", said=stack.said,
    )  # fmt: skip
    client.runs.pause(again_id)
    small_runs.wait_for_status(stack, client, again_id, "PAUSED", seconds=60)
    assert not node.job_processes()
    assert stack.value("SELECT count(*) FROM fleet_lease WHERE released_at IS NULL") == 0

    client.runs.resume(again_id)
    run = small_runs.wait_for_end(stack, client, again_id, seconds=small_runs.BOOT_SECONDS + 120)
    assert run.status == "SUCCEEDED", (run.reason, run.reason_message, stack.said())
    assert (run.attempt_number, run.train_step) == (2, STEPS)
    assert run.parent is not None and (run.parent.id, run.parent.relation) == (first_id, "retry")
    small_runs.assert_balanced(run)
    small_runs.assert_engine_matches_trainer(run)
    small_runs.assert_every_point_is_stored_once(stack)
    small_runs.assert_nothing_is_left(stack)

    before = small_runs.trained_groups(stack, first_id)
    after = small_runs.trained_groups(stack, again_id)
    assert sorted(before) == list(range(1, first.latest_checkpoint.step + 1))
    assert sorted(before | after) == list(range(1, STEPS + 1)) and not before.keys() & after.keys()
    ids = [group for groups in (before | after).values() for group in groups]
    assert len(ids) == len(set(ids)) == STEPS * small_runs.GROUPS_PER_STEP
