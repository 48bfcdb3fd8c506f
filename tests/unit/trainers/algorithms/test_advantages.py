from __future__ import annotations

import pytest

from trainers.algorithms.advantages import rollout_advantages

REWARDS = [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]  # batch mean 0.625, group means 0.25 and 1


def test_group_mean_and_group_std() -> None:
    [first, second] = rollout_advantages(REWARDS, mean="group", std="group", epsilon=1e-4)
    deviation = (0.25 * 0.75) ** 0.5 + 1e-4
    assert first == pytest.approx([0.75 / deviation, *[-0.25 / deviation] * 3])
    assert second == [0.0] * 4


def test_group_mean_without_std_keeps_the_scale_of_rewards() -> None:
    assert rollout_advantages(REWARDS, mean="group", std="none", epsilon=1e-4) == [
        [0.75, -0.25, -0.25, -0.25],
        [0.0] * 4,
    ]


def test_batch_mean_and_batch_std() -> None:
    [first, second] = rollout_advantages(REWARDS, mean="batch", std="batch", epsilon=0.0)
    deviation = (0.625 * 0.375) ** 0.5
    assert first == pytest.approx([0.375 / deviation, *[-0.625 / deviation] * 3])
    assert second == pytest.approx([0.375 / deviation] * 4)


def test_group_mean_and_batch_std() -> None:
    [first, _] = rollout_advantages(REWARDS, mean="group", std="batch", epsilon=0.0)
    assert first[0] == pytest.approx(0.75 / (0.625 * 0.375) ** 0.5)


def test_without_mean_and_std_advantages_equal_rewards() -> None:
    assert rollout_advantages(REWARDS, mean="none", std="none", epsilon=1e-4) == REWARDS


def test_equal_rewards_give_exactly_zero_despite_rounding() -> None:
    assert rollout_advantages([[0.1] * 7], mean="group", std="group", epsilon=1e-4) == [[0.0] * 7]


def test_groups_may_differ_in_size() -> None:
    shapes = [
        len(group)
        for group in rollout_advantages([[1.0, 0.0], [1.0, 0.0, 0.0]], mean="group", std="group", epsilon=0)
    ]
    assert shapes == [2, 3]


def test_batch_mean_is_over_rollouts_regardless_of_groups() -> None:
    assert rollout_advantages([[1.0], [0.0, 0.0, 0.0]], mean="batch", std="none", epsilon=0) == [
        [0.75],
        [-0.25] * 3,
    ]


@pytest.mark.parametrize("leave_one_out", [False, True])
def test_group_of_one_has_zero_advantage(leave_one_out: bool) -> None:
    std = "none" if leave_one_out else "group"
    found = rollout_advantages(
        [[5.0], [1.0, 0.0]], mean="group", std=std, epsilon=1e-4, leave_one_out=leave_one_out
    )
    assert found[0] == [0.0] and found[1][0] > 0


def test_std_of_selects_population_or_sample_deviation() -> None:
    """Rewards 1, 0, 0, 0: squares add up to 3/4; divided by 4 that is a deviation of 0.4330, by 3 of 0.5."""
    [population] = rollout_advantages(REWARDS[:1], mean="group", std="group", epsilon=0.0)
    [sample] = rollout_advantages(REWARDS[:1], mean="group", std="group", std_of="sample", epsilon=0.0)
    assert population == pytest.approx([3**0.5, *[-(3**0.5) / 3] * 3])
    assert sample == pytest.approx([1.5, -0.5, -0.5, -0.5])
    [of_batch, _] = rollout_advantages(REWARDS, mean="group", std="batch", std_of="sample", epsilon=0.0)
    assert of_batch[0] == pytest.approx(0.75 / (8 * 0.625 * 0.375 / 7) ** 0.5)


def test_sample_std_of_one_reward_is_zero_and_advantage_is_finite() -> None:
    [alone, _] = rollout_advantages(
        [[5.0], [1.0, 0.0]], mean="none", std="group", std_of="sample", epsilon=0.5
    )
    assert alone == [10.0]


def test_leave_one_out_subtracts_the_mean_of_the_other_rewards() -> None:
    [found] = rollout_advantages(
        [[1.0, 0.0, 0.0, 3.0]], mean="group", std="none", epsilon=1e-4, leave_one_out=True
    )
    assert found == pytest.approx([1 - 3 / 3, 0 - 4 / 3, 0 - 4 / 3, 3 - 1 / 3])
    assert rollout_advantages([[0.1] * 7], mean="group", std="none", epsilon=1e-4, leave_one_out=True) == [
        [0.0] * 7
    ]
