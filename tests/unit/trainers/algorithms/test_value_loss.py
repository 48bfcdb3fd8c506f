from __future__ import annotations

import pytest
import torch

from trainers.algorithms.value_loss import value_loss


def test_value_outside_the_clip_range_has_no_gradient() -> None:
    old, returns = torch.zeros(4, dtype=torch.float64), torch.tensor([1.0, 1.0, 1.0, -1.0]).double()
    values = torch.tensor([0.1, 0.5, -0.5, 0.5], dtype=torch.float64, requires_grad=True)
    result = value_loss(values, old, returns, clip=0.2)
    assert result.loss.tolist() == pytest.approx([0.405, 0.32, 1.125, 1.125])
    assert result.clipped.tolist() == [False, True, False, False]
    [slope] = torch.autograd.grad(result.loss.sum(), values)
    assert slope.tolist() == pytest.approx([-0.9, 0.0, -1.5, 1.5])
    free = value_loss(values, old, returns, clip=None)
    assert free.loss.tolist() == pytest.approx([0.405, 0.125, 1.125, 1.125])
