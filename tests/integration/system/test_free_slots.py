"""What else uses a slot of the real system: an eval run of a model, the test of a reward, a chat."""

from __future__ import annotations

from pathlib import Path

import pytest

from oolong.sandbox import probe_sandbox
from tests.support import small_runs
from tests.support.isolation import require_isolation
from tests.support.small_runs import ROWS, Inputs
from tests.support.stack import Stack, until
from tests.support.tiny_specs import tiny_spec

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1200)]

REWARD = {"name": "exact_match", "options": {"extract": "regex", "pattern": "[01]"}}


@pytest.fixture(scope="module", autouse=True)
def _node(stack: Stack) -> None:
    stack.add_node("only", slots=1)


def test_an_eval_run_scores_a_model_on_one_slot(stack: Stack, inputs: Inputs) -> None:
    with stack.client() as client:
        run = client.runs.create(tiny_spec(
            {
                "kind": "eval", "name": "eval", "model": {"base_model": inputs.model},
                "dataset": {"version": inputs.dataset, "split": "eval"}, "reward": REWARD,
                "evaluation": {"prompts": 16, "samples": 2}, "rollout": {"max_new_tokens": 32},
            }
        ))  # fmt: skip
        run = small_runs.wait_for_end(stack, client, run.id, seconds=small_runs.BOOT_SECONDS + 60)
        assert run.status == "SUCCEEDED", (run.reason, run.reason_message, stack.said())
        scores = run.summary["evaluation"]["end"]
        assert (scores["prompts"], scores["samples"], scores["version"]) == (16, 2, 0)
        assert client.runs.last_value(run.id, "eval/accuracy") == pytest.approx(scores["accuracy"])


def test_a_rewards_test_samples_scores_twice_and_reports(
    stack: Stack, inputs: Inputs, tmp_path: Path
) -> None:
    """The uploaded reward pays for a completion that names both answers, which a report must say."""
    require_isolation(probe_sandbox(slots=1).capabilities)
    source = tmp_path / "anywhere.py"
    source.write_text("def score(prompt, completion, answer):\n    return float(answer in completion)\n")
    with stack.client() as client:
        function = client.functions.upload(source, name="anywhere", kind="reward")
        test = client.reward_tests.create(
            dataset=inputs.dataset, split="eval", model=inputs.model, reward={"function": function.ref},
            reward_test={"rows": 4, "samples": 2, "max_new_tokens": 16},
            stored=[{"row": ROWS, "completion": "1"}],
        )  # fmt: skip
        run = small_runs.wait_for_end(stack, client, test.run, seconds=small_runs.BOOT_SECONDS + 60)
        assert run.status == "SUCCEEDED", (run.reason, run.reason_message, stack.said())
        test = client.reward_tests.get(test.id)
        assert test.report is not None
        assert test.report["sources"]["model"] == 8
        assert test.report["sources"]["stored"] == 1
        assert test.result == "red"
        assert "probe_all_answers" in {reason["code"] for reason in test.report["reasons"]}


def test_a_playground_chats_scores_and_gives_its_slot_to_a_run(stack: Stack, inputs: Inputs) -> None:
    with stack.client() as client:
        opened = client.playgrounds.open(
            {"base_model": inputs.model}, {"base_model": inputs.model}, reward=REWARD
        )
        boot = small_runs.BOOT_SECONDS + 60
        first = until(
            lambda: next((side for side in client.playgrounds.get(opened.id).sides if side.ready), None),
            seconds=boot, what="a side that answers", said=stack.said,
        )  # fmt: skip
        # The node has one slot: the other side waits and says why.
        other = next(side for side in client.playgrounds.get(opened.id).sides if side.run != first.run)
        assert (other.status, "needs 1 slot" in other.pending_reason) == ("QUEUED", True)
        question = [{"role": "user", "content": "bit 3"}]
        pieces = list(client.playgrounds.chat(first.run, question, temperature=0.0, max_tokens=12))
        assert len(pieces) > 1, "the reply came in one piece"
        scored = client.playgrounds.score(first.run, question, "1", answer="1")
        assert scored.score == 1.0
        run = client.runs.create(tiny_spec(
            {
                "kind": "eval", "name": "needs the slot", "model": {"base_model": inputs.model},
                "dataset": {"version": inputs.dataset, "split": "eval"}, "reward": REWARD,
                "evaluation": {"prompts": 4, "samples": 0}, "rollout": {"max_new_tokens": 8},
            }
        ))  # fmt: skip
        ended = small_runs.wait_for_end(stack, client, first.run, seconds=180)
        assert (ended.status, ended.reason) == ("STOPPED", "preempted")
        client.playgrounds.close(opened.id)
        run = small_runs.wait_for_end(stack, client, run.id, seconds=boot)
        assert run.status == "SUCCEEDED", (run.reason, run.reason_message, stack.said())
        assert not client.playgrounds.get(opened.id).open
