"""Overlong penalty and masking of truncated completions."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from oolong.contracts.rollout import Group, Trajectory, Turn
from oolong.contracts.run_spec import AlgorithmSection, OverlongSection
from trainers.algorithms.reward_shaping import apply_reward_shaping, overlong_penalty, shaping_metrics


def test_overlong_penalty_is_linear_over_the_margin() -> None:
    section = OverlongSection(margin_tokens=4, penalty=2.0)
    found = [overlong_penalty(length, section, max_new_tokens=10) for length in (1, 6, 7, 8, 10, 12)]
    assert found == [0.0, 0.0, -0.5, -1.0, -2.0, -2.0]


def trajectory(length: int, finish: str) -> Trajectory:
    return Trajectory(
        token_ids=[7] * length, loss_mask=[1] * length, behavior_logprobs=[-1.0] * length,
        policy_versions=[0] * length, finish_reason=finish, reward=1.0,  # type: ignore[arg-type]
    )  # fmt: skip


GROUP = Group(
    group_id="0-0-0", row=0, prompt_token_ids=[1], prompt="", answer="",
    trajectories=[trajectory(5, "stop"), trajectory(9, "stop"), trajectory(10, "length")],
)  # fmt: skip


def test_truncated_completion_is_masked_and_keeps_its_reward() -> None:
    algorithm = AlgorithmSection(mask_truncated=True)
    [found] = apply_reward_shaping([GROUP], algorithm, max_new_tokens=10)
    assert [sum(one.loss_mask) for one in found.trajectories] == [5, 9, 0]
    assert [one.reward for one in found.trajectories] == [1.0, 1.0, 1.0]
    assert shaping_metrics([GROUP], algorithm, max_new_tokens=10) == {
        "response_length/masked_frac": pytest.approx(1 / 3)
    }


def test_overlong_penalty_lowers_rewards_without_modifying_the_batch() -> None:
    algorithm = AlgorithmSection(overlong=OverlongSection(margin_tokens=2))
    [found] = apply_reward_shaping([GROUP], algorithm, max_new_tokens=10)
    assert [one.reward for one in found.trajectories] == [1.0, 0.5, 0.0]
    assert [one.reward for one in GROUP.trajectories] == [1.0, 1.0, 1.0]
    metrics = shaping_metrics([GROUP], algorithm, max_new_tokens=10)
    assert metrics["response_length/overlong_frac"] == pytest.approx(2 / 3)
    assert metrics["reward/overlong_penalty_mean"] == pytest.approx(-0.5)


def test_environment_tokens_do_not_count_as_overlong() -> None:
    turns = replace(GROUP.trajectories[2], loss_mask=[1] * 4 + [0] * 3 + [1] * 3)
    algorithm = AlgorithmSection(overlong=OverlongSection(margin_tokens=2))
    [found] = apply_reward_shaping([replace(GROUP, trajectories=[turns])], algorithm, max_new_tokens=10)
    assert found.trajectories[0].reward == 1.0


def with_turns(*tokens: int, rollout: int | None = None) -> Trajectory:
    """Turns of the policy with one token of the environment between them."""
    turns = [
        turn
        for length in tokens
        for turn in (Turn(tokens=length, sampled=True), Turn(tokens=1, sampled=False))
    ]
    mask = [int(turn.sampled) for turn in turns[:-1] for _ in range(turn.tokens)]
    return Trajectory(
        token_ids=[7] * len(mask), loss_mask=mask, behavior_logprobs=[0.0] * len(mask),
        policy_versions=[0] * len(mask), finish_reason="stop", turns=turns[:-1], reward=1.0, rollout=rollout,
    )  # fmt: skip


def test_overlong_penalty_applies_per_turn_not_to_the_sum() -> None:
    """Limit 10 and margin 2: three turns of 4 tokens are 12 together and free; one turn of 9 costs half."""
    algorithm = AlgorithmSection(overlong=OverlongSection(margin_tokens=2))
    group = replace(GROUP, trajectories=[with_turns(4, 4, 4), with_turns(4, 9, 3), with_turns(10)])
    [found] = apply_reward_shaping([group], algorithm, max_new_tokens=10)
    assert [one.reward for one in found.trajectories] == [1.0, 0.5, 0.0]
    metrics = shaping_metrics([group], algorithm, max_new_tokens=10)
    assert metrics["response_length/overlong_frac"] == pytest.approx(2 / 3)


def test_rollout_shares_the_penalty_of_its_longest_turn() -> None:
    algorithm = AlgorithmSection(overlong=OverlongSection(margin_tokens=2))
    group = replace(
        GROUP, trajectories=[with_turns(3, rollout=0), with_turns(9, rollout=0), with_turns(3, rollout=1)]
    )
    [found] = apply_reward_shaping([group], algorithm, max_new_tokens=10)
    assert [one.reward for one in found.trajectories] == [0.5, 0.5, 1.0]
    metrics = shaping_metrics([group], algorithm, max_new_tokens=10)
    assert (
        metrics["response_length/overlong_frac"] == 0.5 and metrics["reward/overlong_penalty_mean"] == -0.25
    )


def test_groups_are_unchanged_without_reward_shaping() -> None:
    assert apply_reward_shaping([GROUP], AlgorithmSection(), max_new_tokens=10)[0] is GROUP
    assert math.isclose(overlong_penalty(10, OverlongSection(margin_tokens=1), max_new_tokens=10), -1.0)
