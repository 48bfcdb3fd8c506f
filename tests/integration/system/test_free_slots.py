"""What else uses a slot of the real system: an eval run of a model, and the test of a reward."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import small_runs
from tests.support.small_runs import ROWS, Inputs
from tests.support.stack import Stack

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(400)]

REWARD = {"name": "exact_match", "options": {"extract": "regex", "pattern": "[01]"}}


@pytest.fixture(scope="module", autouse=True)
def _node(stack: Stack) -> None:
    stack.add_node("only", slots=1)


def test_an_eval_run_scores_a_model_on_one_slot(stack: Stack, inputs: Inputs) -> None:
    with stack.client() as client:
        run = client.runs.create(
            {
                "kind": "eval", "name": "eval", "model": {"base_model": inputs.model},
                "dataset": {"version": inputs.dataset, "split": "eval"}, "reward": REWARD,
                "evaluation": {"prompts": 16, "samples": 2}, "rollout": {"max_new_tokens": 32},
            }
        )  # fmt: skip
        run = small_runs.wait_for_end(stack, client, run.id, seconds=small_runs.BOOT_SECONDS + 60)
        assert run.status == "SUCCEEDED", (run.reason, run.reason_message, stack.said())
        scores = run.summary["evaluation"]["end"]
        assert (scores["prompts"], scores["samples"], scores["version"]) == (16, 2, 0)
        assert client.runs.last_value(run.id, "eval/accuracy") == pytest.approx(scores["accuracy"])


def test_a_rewards_test_samples_scores_twice_and_reports(
    stack: Stack, inputs: Inputs, tmp_path: Path
) -> None:
    """The uploaded reward pays for a completion that names both answers, which a report must say."""
    source = tmp_path / "anywhere.py"
    source.write_text("def score(prompt, completion, answer):\n    return float(answer in completion)\n")
    with stack.client() as client:
        function = client.functions.upload(source, name="anywhere", kind="reward")
        test = client.reward_tests.create(
            dataset=inputs.dataset, split="eval", model=inputs.model, reward={"function": function.ref},
            bench={"rows": 4, "samples": 2, "max_new_tokens": 16},
            stored=[{"row": ROWS, "completion": "1"}],
        )  # fmt: skip
        run = small_runs.wait_for_end(stack, client, test.run, seconds=small_runs.BOOT_SECONDS + 60)
        assert run.status == "SUCCEEDED", (run.reason, run.reason_message, stack.said())
        test = client.reward_tests.get(test.id)
        assert test.report is not None
        assert test.report["sources"]["model"] == 8
        assert test.report["sources"]["stored"] == 1
        assert test.verdict == "red"
        assert "cheat_all_answers" in {reason["code"] for reason in test.report["reasons"]}
