"""GAE: the recursion, its limits, and normalization over tokens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from oolong.contracts.run_spec import AdvantageSection
from trainers.algorithms.gae import gae, normalize_advantages


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_gae_matches_a_worked_example() -> None:
    """gamma 0.9, lambda 0.8; delta = (0.1, 0.16, 0.7) from r = (0, 0, 1) and V = (0.17, 0.3, 0.3) by hand."""
    [advantage], [returns] = gae([tensor(0, 0, 1)], [tensor(0.17, 0.3, 0.3)], gamma=0.9, gae_lambda=0.8)
    deltas = [0.9 * 0.3 - 0.17, 0.9 * 0.3 - 0.3, 1 - 0.3]
    third = 0.7
    second = deltas[1] + 0.72 * third
    first = deltas[0] + 0.72 * second
    assert advantage.tolist() == pytest.approx([first, second, third])
    assert [first, second] == pytest.approx([0.1 + 0.72 * 0.474, 0.474])
    assert returns.tolist() == pytest.approx([first + 0.17, second + 0.3, 1.0])


def test_gamma_and_lambda_one_without_values_give_the_reward_to_every_token() -> None:
    lengths, rewards = [3, 1, 5], [5.0, -5.0, 5.0]
    earned = [
        torch.cat([torch.zeros(length - 1), torch.tensor([reward])])
        for length, reward in zip(lengths, rewards, strict=True)
    ]
    advantages, returns = gae(earned, [torch.zeros_like(one) for one in earned], gamma=1.0, gae_lambda=1.0)
    for one, back, length, reward in zip(advantages, returns, lengths, rewards, strict=True):
        assert one.tolist() == back.tolist() == [reward] * length


def test_lambda_one_gives_discounted_return_minus_value() -> None:
    rng = torch.Generator().manual_seed(1)
    reward, value = torch.randn(2, 9, generator=rng, dtype=torch.float64)
    [advantage], [returns] = gae([reward], [value], gamma=0.95, gae_lambda=1.0)
    discounted = [sum(0.95 ** (later - t) * float(reward[later]) for later in range(t, 9)) for t in range(9)]
    assert returns.tolist() == pytest.approx(discounted)
    assert advantage.tolist() == pytest.approx((torch.tensor(discounted).double() - value).tolist())


def test_lambda_zero_gives_the_td_error() -> None:
    [advantage], _ = gae([tensor(1, 2)], [tensor(0.5, 0.25)], gamma=0.5, gae_lambda=0.0)
    assert advantage.tolist() == [1 + 0.5 * 0.25 - 0.5, 2 - 0.25]


def test_batched_sequences_equal_single_sequences() -> None:
    rng = torch.Generator().manual_seed(2)
    rewards = [torch.randn(length, generator=rng) for length in (1, 7, 4)]
    values = [torch.randn(length, generator=rng) for length in (1, 7, 4)]
    together, _ = gae(rewards, values, gamma=0.9, gae_lambda=0.7)
    for number in range(3):
        [alone], _ = gae(rewards[number : number + 1], values[number : number + 1], gamma=0.9, gae_lambda=0.7)
        assert torch.equal(together[number], alone)


def test_batch_normalization_weighs_tokens_not_trajectories() -> None:
    section = AdvantageSection(estimator="gae", mean="batch", std="batch", epsilon=1e-12)
    long, short = tensor(1, 1, 1), tensor(-1)
    found = normalize_advantages([long, short], [0, 1], num_groups=2, section=section, sum_over_ranks=list)
    deviation = (0.75 * 0.5**2 + 0.25 * 1.5**2) ** 0.5  # mean 0.5
    assert found[0].tolist() == pytest.approx([0.5 / deviation] * 3)
    assert found[1].tolist() == pytest.approx([-1.5 / deviation])


def test_group_normalization_uses_the_group_on_all_ranks() -> None:
    section = AdvantageSection(estimator="gae", mean="group", std="none")
    mine, other = tensor(1, 3), tensor(8)
    elsewhere = {(2.0, 1.0): [0.0, 2.0], (4.0, 8.0): [0.0, 2.0]}  # another rank: two tokens of group 1, sum 2

    def total(values: object) -> list[float]:
        assert isinstance(values, list)
        return [one + two for one, two in zip(values, elsewhere[tuple(values)], strict=True)]

    found = normalize_advantages([mine, other], [0, 1], num_groups=2, section=section, sum_over_ranks=total)
    assert found[0].tolist() == [-1, 1]
    assert found[1].tolist() == pytest.approx([8 - 10 / 3])


def test_batch_std_is_over_all_ranks() -> None:
    """Here one token of advantage 1, on another rank one of 3: mean 2, variance 1."""
    section = AdvantageSection(estimator="gae", mean="batch", std="batch", epsilon=1e-9)
    elsewhere = iter([[1.0], [3.0], [1.0]])  # its count, sum and sum of squares about the mean

    def total(values: Sequence[float]) -> list[float]:
        return [one + two for one, two in zip(values, next(elsewhere), strict=True)]

    [found] = normalize_advantages([tensor(1)], [0], num_groups=1, section=section, sum_over_ranks=total)
    assert found.tolist() == pytest.approx([-1.0])
