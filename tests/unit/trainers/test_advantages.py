from __future__ import annotations

import pytest

from trainers.algorithms.advantages import rollout_advantages

REWARDS = [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]  # batch mean 0.625, group means 0.25 and 1


def test_group_mean_and_group_std() -> None:
    [first, second] = rollout_advantages(REWARDS, mean="group", std="group", epsilon=1e-4)
    deviation = (0.25 * 0.75) ** 0.5 + 1e-4
    assert first == pytest.approx([0.75 / deviation, *[-0.25 / deviation] * 3])
    assert second == [0.0] * 4


def test_group_mean_without_std_keeps_the_size_of_the_reward() -> None:
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


def test_neither_leaves_the_rewards() -> None:
    assert rollout_advantages(REWARDS, mean="none", std="none", epsilon=1e-4) == REWARDS


def test_equal_rewards_that_floats_cannot_average_still_give_exactly_zero() -> None:
    assert rollout_advantages([[0.1] * 7], mean="group", std="group", epsilon=1e-4) == [[0.0] * 7]


def test_groups_may_differ_in_size() -> None:
    shapes = [
        len(group)
        for group in rollout_advantages([[1.0, 0.0], [1.0, 0.0, 0.0]], mean="group", std="group", epsilon=0)
    ]
    assert shapes == [2, 3]


def test_the_mean_of_a_batch_is_over_its_trajectories_however_they_are_grouped() -> None:
    assert rollout_advantages([[1.0], [0.0, 0.0, 0.0]], mean="batch", std="none", epsilon=0) == [
        [0.75],
        [-0.25] * 3,
    ]


@pytest.mark.parametrize("leave_one_out", [False, True])
def test_a_group_of_one_has_nothing_to_be_compared_with(leave_one_out: bool) -> None:
    std = "none" if leave_one_out else "group"
    found = rollout_advantages(
        [[5.0], [1.0, 0.0]], mean="group", std=std, epsilon=1e-4, leave_one_out=leave_one_out
    )
    assert found[0] == [0.0] and found[1][0] > 0


def test_the_standard_deviation_is_of_the_population_or_of_a_sample() -> None:
    """Rewards 1, 0, 0, 0: squares add up to 3/4; divided by 4 that is a deviation of 0.4330, by 3 of 0.5."""
    [population] = rollout_advantages(REWARDS[:1], mean="group", std="group", epsilon=0.0)
    [sample] = rollout_advantages(REWARDS[:1], mean="group", std="group", std_of="sample", epsilon=0.0)
    assert population == pytest.approx([3**0.5, *[-(3**0.5) / 3] * 3])
    assert sample == pytest.approx([1.5, -0.5, -0.5, -0.5])
    [of_batch, _] = rollout_advantages(REWARDS, mean="group", std="batch", std_of="sample", epsilon=0.0)
    assert of_batch[0] == pytest.approx(0.75 / (8 * 0.625 * 0.375 / 7) ** 0.5)


def test_a_sample_of_one_has_no_deviation_and_its_advantage_stays_finite() -> None:
    [alone, _] = rollout_advantages(
        [[5.0], [1.0, 0.0]], mean="none", std="group", std_of="sample", epsilon=0.5
    )
    assert alone == [10.0]
