"""A real evaluation gets a slot that nobody else uses, and the run's only engine goes on generating."""

from __future__ import annotations

import pytest

from gpu_agents.rollout.controller.__main__ import EVALUATOR_SECONDS
from tests.support import small_runs
from tests.support.small_runs import BOOT_SECONDS, Inputs
from tests.support.stack import Stack, until

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

EVALUATION = {
    "split": "eval", "prompts": 8, "samples": 1, "at_start": False, "at_end": False, "every_steps": 5,
    "allow_blocking": True,
}  # fmt: skip


def test_an_evaluation_is_made_on_an_idle_slot_which_is_free_afterwards(stack: Stack, inputs: Inputs) -> None:
    # However slow this machine is, the evaluation is left to who comes for it.
    patience = {"OOLONG_TEST_EVALUATOR_SECONDS": str(100 * EVALUATOR_SECONDS)}
    node = stack.add_node("three", slots=3, switches={"jobs": patience})
    with stack.client() as client:
        run_id = client.runs.create(small_runs.spec(inputs, steps=5000, evaluation=EVALUATION)).id
        small_runs.wait_for_step(stack, run_id, 5)

        def told() -> list[str]:
            said = [event.message for event in client.runs.events(run_id)]
            return [message for message in said if "evaluation step-5 of version 5 took" in message]

        until(told, seconds=2 * BOOT_SECONDS, what="it is done", said=stack.said)
        assert "took evaluator-1/0, beside the run's engines" in told()[0], told()
        assert client.runs.last_value(run_id, "eval/greedy") is not None
        [evaluated] = [job for job in client.runs.jobs(run_id) if job.name == "evaluator-1"]
        assert evaluated.evaluates == 5
        pipeline = client.runs.document(run_id, "pipeline").value
        assert [engine["worker"] for engine in pipeline["engines"]] == ["rollout-0/0"]
        assert (pipeline["engines_joined"], pipeline["engines_left"]) == (1, 0)
        assert pipeline["ledger"]["balances"] and pipeline["tokens"]["balances"]

        def released() -> bool:
            return bool(
                stack.value(
                    "SELECT count(*) FROM fleet_lease l JOIN runs_job j ON j.id = l.job "
                    "WHERE j.name = 'evaluator-1' AND l.released_at IS NOT NULL"
                )
            )

        until(released, seconds=120, what="its slot is free", said=stack.said)
        assert "rollout-0" in node.supervised(), "the run's engine was there all the time"
        made = client.runs.get(run_id)
        assert (made.status, made.attempt_number) == ("RUNNING", 1), made.reason_message
        step = small_runs.last_step([node])
        small_runs.wait_for_step(stack, run_id, step + 2, seconds=BOOT_SECONDS)
        client.runs.cancel(run_id)
        small_runs.wait_for_end(stack, client, run_id, seconds=90)
        small_runs.assert_nothing_is_left(stack)
