"""What the other tests and the demo would see if a part were hollow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from local_stack.demo_summary import failed_checks, summarize
from tests.support import small_runs
from tests.support.small_runs import Inputs, upload_inputs
from tests.support.stack import Stack

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1500)]

SPANNING = "no trajectory spans two policy versions"


@pytest.mark.parametrize("loads", [True, False])
def test_without_weight_loads_nothing_spans_versions_and_the_demo_fails(
    stack: Stack, inputs: Inputs, loads: bool
) -> None:
    switches: dict[str, Any] = {"jobs": {} if loads else {"OOLONG_TEST_DISABLE_WEIGHT_LOADS": "1"}}
    stack.add_node("only", slots=2, switches=switches)
    client = stack.client()
    run_id = client.runs.create(small_runs.spec(inputs, steps=20)).id
    run = small_runs.wait_for_end(stack, client, run_id, seconds=small_runs.BOOT_SECONDS + 60)
    assert run.status == "SUCCEEDED", (run.reason, run.reason_message, stack.said())
    spanning = run.summary["controller"]["trajectories_spanning_versions"]
    found = failed_checks(summarize(client, run, {}))
    assert (spanning > 0) is loads
    assert any(text.startswith(SPANNING) for text in found) is not loads, found
    if loads:
        small_runs.assert_engine_matches_trainer(run)
    small_runs.assert_nothing_is_left(stack)


def test_without_shipping_no_metric_is_in_the_database(stack: Stack, inputs: Inputs) -> None:
    stack.add_node("only", slots=2, switches={"ships": False})
    client = stack.client()
    run_id = client.runs.create(small_runs.spec(inputs, steps=200)).id
    small_runs.wait_for_step(stack, run_id, 5)
    assert stack.value("SELECT count(*) FROM telemetry_metricpoint") == 0
    assert client.runs.get(run_id).train_step == 0


def test_a_reward_that_raises_costs_exactly_its_groups(new_stack: Callable[..., Stack], model: Path) -> None:
    stack = new_stack()
    inputs = upload_inputs(stack, model)
    node = stack.add_node("only", slots=2, switches={"reward_fails": True})
    client = stack.client()
    document = small_runs.spec(
        inputs, steps=20,
        reward={
            "name": "exact_match", "options": {"extract": "regex", "pattern": "[01]"}, "max_error_rate": 1.0,
        },
        # Two groups a step: of so few, the trajectory browser keeps every one.
        trainer={"total_train_steps": 20, "groups_per_step": 2, "minibatches": 1},
    )  # fmt: skip
    run_id = client.runs.create(document).id
    run = small_runs.wait_for_end(stack, client, run_id, seconds=small_runs.BOOT_SECONDS + 60)
    assert run.status == "SUCCEEDED", (run.reason, run.reason_message, stack.said())
    small_runs.assert_balanced(run)
    small_runs.assert_no_gap_and_no_repeat(stack, run, failing_rows=3)
    assert run.summary["controller"]["ledger"]["errors"].keys() == {"reward_error"}

    rewards: dict[int, list[float]] = {}
    for step, reward in stack.rows("SELECT step, reward FROM telemetry_trajectorysample"):
        rewards.setdefault(step, []).append(reward)
    (series,) = client.runs.metrics(run_id, ["reward/mean"], axis="step").series
    assert {len(values) for values in rewards.values()} == {2 * document["rollout"]["group_size"]}
    assert dict(zip(series.x, series.value, strict=True)) == pytest.approx(
        {step: sum(values) / len(values) for step, values in rewards.items()}
    )
    assert any(0 < value < 1 for value in series.value), "every reward was the same: the mean shows nothing"
    # The paths came back: as many groups were trained as if no reward had failed.
    assert run.summary["controller"]["ledger"]["trained"] == 40
    assert len(list(node.jobs())) == 4, "a job was restarted"
    small_runs.assert_nothing_is_left(stack)
