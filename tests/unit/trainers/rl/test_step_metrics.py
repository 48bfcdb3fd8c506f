from __future__ import annotations

import pytest

from oolong.contracts.rollout import Group, Trajectory, Turn
from trainers.rl.step_metrics import batch_metrics


def group(number: int, *trajectories: Trajectory) -> Group:
    return Group(
        group_id=f"0-{number}-0", row=number, prompt_token_ids=[7, 8, 9], prompt="", answer="",
        trajectories=list(trajectories),
    )  # fmt: skip


def test_batch_metrics_include_turns_and_environment_tokens() -> None:
    several_turns = Trajectory(
        token_ids=[1] * 8, loss_mask=[1, 1, 0, 0, 1, 1, 1, 1], behavior_logprobs=[0.0] * 8,
        policy_versions=[0] * 8, finish_reason="stop", reward=1.0, score=1.0, tool_calls=2,
        turns=[Turn(tokens=2, sampled=True), Turn(tokens=2, sampled=False), Turn(tokens=4, sampled=True)],
    )  # fmt: skip
    one_turn = Trajectory(
        token_ids=[1] * 2, loss_mask=[1] * 2, behavior_logprobs=[0.0] * 2, policy_versions=[0] * 2,
        finish_reason="stop", reward=0.0, score=0.0, turns=[Turn(tokens=2, sampled=True)],
    )  # fmt: skip
    metrics = batch_metrics([group(0, several_turns, one_turn)])
    assert metrics["workflow/turns_mean"] == 1.5
    assert metrics["workflow/turns_max"] == 2
    assert metrics["workflow/tool_calls_mean"] == 1
    assert metrics["workflow/environment_tokens_frac"] == pytest.approx(0.2)
    assert metrics["response_length/mean"] == 4
