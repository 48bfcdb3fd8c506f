"""Idle slots work for a real run as it trains: a second engine joins and leaves, and an evaluation is made on one."""

from __future__ import annotations

import re

import pytest

from gpu_agents.rollout.controller.__main__ import EVALUATOR_SECONDS
from tests.support import small_runs
from tests.support.small_runs import BOOT_SECONDS, Inputs
from tests.support.stack import Stack, until

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]


# Only by request; on an engine of the run's own where no slot is idle.
EVALUATION = {
    "split": "eval", "prompts": 8, "samples": 1, "at_start": False, "at_end": False, "every_steps": 5000,
    "allow_blocking": True,
}  # fmt: skip
RELEASED = (
    "SELECT count(*) FROM fleet_lease l JOIN runs_job j ON j.id = l.job "
    "WHERE j.name LIKE 'evaluator-%%' AND l.released_at IS NOT NULL"
)


def test_an_engine_joins_and_leaves_and_an_evaluation_takes_its_slot(stack: Stack, inputs: Inputs) -> None:
    # However slow this machine is, the evaluation waits for its evaluator.
    patience = {"OOLONG_TEST_EVALUATOR_SECONDS": str(100 * EVALUATOR_SECONDS)}
    node = stack.add_node("three", slots=3, switches={"jobs": patience})
    with stack.client() as client:
        run_id = client.runs.create(small_runs.spec(inputs, steps=5000, evaluation=EVALUATION)).id
        small_runs.wait_for_step(stack, run_id, 2)
        client.runs.change(run_id, changes={"rollout": {"engines": 2}})
        until(lambda: "rollout-1" in node.supervised(), seconds=120, what="the job joins", said=stack.said)

        def engines() -> set[str]:
            pipeline = client.runs.document(run_id, "pipeline").value
            return {str(engine["worker"]).split("#")[0] for engine in pipeline["engines"]}

        until(lambda: len(engines()) == 2, seconds=2 * BOOT_SECONDS, what="both work", said=stack.said)
        made = client.runs.get(run_id)
        assert (made.status, made.attempt_number) == ("RUNNING", 1), "the run went on"
        step = small_runs.last_step([node])
        small_runs.wait_for_step(stack, run_id, step + 2, seconds=BOOT_SECONDS)

        client.runs.change(run_id, changes={"rollout": {"engines": 1}})
        free = "SELECT count(*) FROM fleet_lease WHERE released_at IS NULL"
        until(lambda: stack.value(free) == 2, seconds=180, what="its slot is free", said=stack.said)
        assert client.runs.get(run_id).status == "RUNNING"

        client.runs.change(run_id, changes={}, evaluate=True)

        def results() -> list[str]:
            events = [event.message for event in client.runs.events(run_id)]
            return [message for message in events if "evaluation" in message and " took " in message]

        until(results, seconds=2 * BOOT_SECONDS, what="the evaluation's result", said=stack.said)
        assert re.search(r"took evaluator-\d+/0, beside the run's engines", results()[0]), results()
        assert client.runs.last_value(run_id, "eval/greedy") is not None
        until(lambda: stack.value(RELEASED), seconds=120, what="its slot is free", said=stack.said)
        pipeline = client.runs.document(run_id, "pipeline").value
        assert pipeline["ledger"]["balances"] and pipeline["tokens"]["balances"]
        assert "rollout-0" in node.supervised(), "the run's engine was there all the time"
        step = small_runs.last_step([node])
        small_runs.wait_for_step(stack, run_id, step + 2, seconds=BOOT_SECONDS)
        made = client.runs.get(run_id)
        assert (made.status, made.attempt_number) == ("RUNNING", 1), made.reason_message

        client.runs.cancel(run_id)
        ended = small_runs.wait_for_end(stack, client, run_id, seconds=180)
        assert (ended.status, ended.reason) == ("STOPPED", "cancelled_by_user")
        small_runs.assert_nothing_is_left(stack)
