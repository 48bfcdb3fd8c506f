"""A DPO run with a control plane, an agent and a real trainer, which is killed: the run continues as if it was not."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from oolong.contracts.telemetry import Points
from oolong.samples.preference_pairs import PAIR_MAPPING, PreferencePairs, write_pairs
from tests.support import small_runs
from tests.support.outboxes import written_lines
from tests.support.small_runs import Inputs
from tests.support.stack import Node, Stack, until
from tests.support.tiny_specs import tiny_spec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STEPS, EVERY = 160, 8
COMPARED = ("dpo/loss", "dpo/margin", "dpo/chosen_logprob", "optim/grad_norm")


def points_of(node: Node, attempt: str) -> dict[int, dict[str, Any]]:
    """step → metrics, as the trainer of an attempt wrote them."""
    return {
        line.x: dict(line.values)
        for _, directory in node.jobs()
        if directory.parts[-3] == attempt
        for line in written_lines(directory)
        if isinstance(line, Points)
    }


def test_a_killed_trainer_continues_with_the_same_steps(stack: Stack, inputs: Inputs, tmp_path: Path) -> None:
    node, client = stack.add_node("only", slots=1), stack.client()
    file = write_pairs(tmp_path / "pairs.jsonl", PreferencePairs(rows={"train": 120, "eval": 30}))
    version = client.datasets.upload(file, name="pairs", mapping=PAIR_MAPPING)
    assert version.with_pair == {"train": 120, "eval": 30}
    spec = tiny_spec(
        {
            "kind": "dpo", "name": "pairs", "model": {"base_model": inputs.model},
            "dataset": {"version": version.id, "split": "train"}, "checkpoint": {"every_steps": EVERY},
            "dpo": {
                "steps": STEPS, "batch_size": 16, "learning_rate": 1e-4, "validation_split": "eval",
                "validation_rows": 30, "validate_every_steps": 40,
            },
        }
    )  # fmt: skip
    run_id = client.runs.create(spec).id

    def attempt_id(number: int) -> Any:
        return stack.value("SELECT id FROM runs_attempt WHERE run_id = %s AND number = %s", run_id, number)

    until(
        lambda: client.runs.get(run_id).latest_checkpoint, seconds=small_runs.BOOT_SECONDS, what="a checkpoint",
        said=stack.said,
    )  # fmt: skip
    os.kill(node.supervised()["trainer"].job_pid, signal.SIGKILL)
    run = small_runs.wait_for_end(stack, client, run_id, seconds=small_runs.BOOT_SECONDS)
    assert run.status == "SUCCEEDED", (run.reason, run.reason_message, stack.said())
    assert (run.attempt_number, run.train_step) == (2, STEPS)
    first, second = (points_of(node, attempt_id(number)) for number in (1, 2))
    resumed = min(second) - 1
    assert resumed and resumed % EVERY == 0 and sorted(second) == list(range(resumed + 1, STEPS + 1))
    for step in sorted(first.keys() & second.keys()):
        assert [first[step][name] for name in COMPARED] == [second[step][name] for name in COMPARED], step
    every = first | second
    assert every[STEPS]["dpo/loss"] < every[1]["dpo/loss"] == pytest.approx(0.6931, abs=1e-3)
    assert [step for step, values in every.items() if "dpo/validation_loss" in values] == [40, 80, 120, 160]
    small_runs.assert_every_point_is_stored_once(stack)
    assert run.latest_checkpoint is not None and run.latest_checkpoint.step == STEPS
    small_runs.assert_checkpoint_is_whole(stack, client, run.latest_checkpoint.id, tmp_path)
