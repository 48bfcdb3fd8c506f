from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from trainers.dpo.loss import accuracy, dpo_losses

POLICY, REFERENCE, LENGTHS = [[-3.0, -5.0], [-8.0, -2.0]], [[-4.0, -4.5], [-7.0, -3.0]], [[2, 4], [10, 1]]


def losses(**options: Any) -> Any:
    settings = {"beta": 0.1, "label_smoothing": 0.0, "length_normalized": False, **options}
    tensors = (torch.tensor(values, dtype=torch.float64) for values in (POLICY, REFERENCE, LENGTHS))
    return dpo_losses(*tensors, **settings)


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


@pytest.mark.parametrize("beta", [0.1, 5.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("normalized", [False, True])
def test_the_loss_is_that_of_the_paper(beta: float, smoothing: float, normalized: bool) -> None:
    found = losses(beta=beta, label_smoothing=smoothing, length_normalized=normalized)
    for number in range(2):
        chosen, rejected = (
            beta
            * (POLICY[number][side] - REFERENCE[number][side])
            / (LENGTHS[number][side] if normalized else 1)
            for side in (0, 1)
        )
        right, wrong = math.log(sigmoid(chosen - rejected)), math.log(sigmoid(rejected - chosen))
        expected = -(1 - smoothing) * right - smoothing * wrong
        assert found.losses[number].item() == pytest.approx(expected, abs=1e-12)
        assert found.chosen_rewards[number].item() == pytest.approx(chosen, abs=1e-12)
        assert found.rejected_rewards[number].item() == pytest.approx(rejected, abs=1e-12)


def test_a_large_margin_neither_overflows_nor_loses_its_gradient() -> None:
    logprobs = torch.tensor([[-4e4, 0.0]], dtype=torch.float64, requires_grad=True)
    found = dpo_losses(
        logprobs, torch.zeros(1, 2), torch.ones(1, 2), beta=1.0, label_smoothing=0.0, length_normalized=False
    )
    found.losses.sum().backward()
    assert found.losses.item() == pytest.approx(4e4) and logprobs.grad.tolist() == [[-1.0, 1.0]]


def test_equal_rewards_count_as_half_right() -> None:
    found = accuracy(torch.tensor([1.0, 0.0, 2.0]), torch.tensor([0.0, 1.0, 2.0]))
    assert found.tolist() == [1.0, 0.0, 0.5]
