"""A second engine joins a real run while it trains, works for it, and leaves again; then the run is cancelled."""

from __future__ import annotations

import pytest

from tests.support import small_runs
from tests.support.small_runs import BOOT_SECONDS, Inputs
from tests.support.stack import Stack, until

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]


def test_an_engine_joins_works_and_leaves(stack: Stack, inputs: Inputs) -> None:
    node = stack.add_node("three", slots=3)
    with stack.client() as client:
        run_id = client.runs.create(small_runs.spec(inputs, steps=5000)).id
        small_runs.wait_for_step(stack, run_id, 2)
        client.runs.change(run_id, changes={"rollout": {"engines": 2}})
        until(lambda: "rollout-1" in node.supervised(), seconds=120, what="the job joins", said=stack.said)

        def engines() -> set[str]:
            pipeline = client.runs.document(run_id, "pipeline").value
            return {str(engine["worker"]).split("#")[0] for engine in pipeline["engines"]}

        until(lambda: len(engines()) == 2, seconds=2 * BOOT_SECONDS, what="both work", said=stack.said)
        made = client.runs.get(run_id)
        assert (made.status, made.attempt_number) == ("RUNNING", 1), "the run went on meanwhile"
        step = small_runs.last_step([node])
        small_runs.wait_for_step(stack, run_id, step + 2, seconds=BOOT_SECONDS)

        client.runs.change(run_id, changes={"rollout": {"engines": 1}})
        free = "SELECT count(*) FROM fleet_lease WHERE released_at IS NULL"
        until(lambda: stack.value(free) == 2, seconds=180, what="its slot is free", said=stack.said)
        step = small_runs.last_step([node])
        small_runs.wait_for_step(stack, run_id, step + 2, seconds=BOOT_SECONDS)
        assert client.runs.get(run_id).status == "RUNNING"

        client.runs.cancel(run_id)
        ended = small_runs.wait_for_end(stack, client, run_id, seconds=180)
        assert (ended.status, ended.reason) == ("STOPPED", "cancelled_by_user")
        small_runs.assert_nothing_is_left(stack)
