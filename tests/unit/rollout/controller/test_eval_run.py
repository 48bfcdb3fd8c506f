"""A run of kind eval: the given weights are scored once, without a trainer, and that is the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_agents.rewards.reward import Completion, ScoringError
from gpu_agents.rollout.controller import __main__ as controller_main
from gpu_agents.rollout.controller.initial_weights import publish_initial_weights
from gpu_agents.rollout.worker.manifest import ExpectedTensors, InvalidWeights, check_weights
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.run_spec import RunSpec, spec_errors
from oolong.contracts.telemetry import Points
from tests.unit.rollout.fake_engine import FakeEngine
from tests.unit.rollout.harness import Harness
from tests.unit.rollout.model_files import SHAPES, write_model

EVALUATION = {"prompts": 6, "samples": 2, "success_score": 1.0}
DOCUMENT: dict[str, Any] = {
    "kind": "eval", "name": "gate", "model": {"checkpoint": "best"}, "dataset": {"version": "d", "split": "eval"},
}  # fmt: skip


async def test_it_scores_the_given_weights_and_ends(
    new_harness: Callable[..., Harness], engine: FakeEngine
) -> None:
    def every_second(completion: Completion) -> float:
        return float(completion.row % 2)

    async with new_harness(reward=every_second, kind="eval", evaluation=EVALUATION) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.until(lambda: run.controller.state.ended)
        scores = run.controller.state.evaluations.scores["end"]
        assert (scores.version, scores.prompts, scores.accuracy, scores.sampled) == (0, 6, 0.5, 0.5)
        assert scores.pass_at[2].value == 0.5
        assert scores.accuracy_interval is not None
        assert scores.accuracy_interval[0] < 0.5 < scores.accuracy_interval[1]
        assert run.controller.state.ledger.counts().drawn == 0, "no group is drawn in an eval run"
        [point] = [
            line
            for line in run.lines("controller")
            if isinstance(line, Points) and "eval/accuracy" in line.values
        ]
        assert (point.x, point.values["eval/accuracy"]) == (0, 0.5)


async def test_a_reward_that_gives_no_score_ends_it_with_the_cause(
    new_harness: Callable[..., Harness], engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(completion: Completion) -> float:
        raise ScoringError("no key in the row")

    monkeypatch.setattr("gpu_agents.rollout.controller.evaluations.ATTEMPTS", 1)
    async with new_harness(reward=broken, kind="eval", evaluation=EVALUATION) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.until(lambda: run.controller.state.ended)
        assert run.controller.state.evaluations.scores == {}
        reason, message = controller_main.evaluation_end_reason(run.controller.state)
        assert reason is EndReason.REWARD_ERRORS
        assert "no key in the row" in message


def test_given_weights_pass_the_check_of_published_ones(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    weights = publish_initial_weights(model, tmp_path / "weights")
    check_weights(weights, ExpectedTensors.of_model(model))
    again = publish_initial_weights(model, tmp_path / "weights")
    assert again == weights, "a controller that is started again publishes the same"
    manifest = json.loads((Path(weights.directory) / "manifest.json").read_bytes())
    assert {tensor["name"] for tensor in manifest["tensors"]} == set(SHAPES)


def test_a_directory_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(InvalidWeights, match="safetensors"):
        publish_initial_weights(tmp_path / "model", tmp_path / "weights")


def test_an_eval_spec_needs_one_slot_and_scores_its_dataset() -> None:
    spec = RunSpec.model_validate(DOCUMENT)
    assert (spec.slots_needed, spec.scoring.prompts, spec.serves_sessions) == (1, 256, False)


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"evaluation": {"split": "test"}}, "/evaluation/split", "option_of_training"),
        ({"evaluation": {"every_steps": 5}}, "/evaluation/every_steps", "option_of_training"),
        ({"evaluation": {"reward": {"name": "math"}}}, "/evaluation/reward", "option_of_training"),
        ({"rollout": {"engines": 2}}, "/rollout/engines", "one_engine"),
        ({"workflow": {"name": "agent_session"}}, "/workflow/name", "no_sessions"),
    ],
)
def test_what_means_nothing_to_an_eval_run_is_refused(
    change: dict[str, Any], pointer: str, code: str
) -> None:
    [fault] = spec_errors(DOCUMENT | change)
    assert (fault.pointer, fault.code) == (pointer, code)
