from __future__ import annotations

import pytest
import torch

from trainers.models.optimizer import learning_rate_at, make_adamw


def test_offloaded_moments_give_bit_equal_steps() -> None:
    weights = []
    for offload in (False, True):
        torch.manual_seed(1)
        layer = torch.nn.Linear(7, 5)
        optimizer = make_adamw(layer.parameters(), learning_rate=0.1, betas=(0.9, 0.99), offload=offload)
        for _ in range(4):
            layer(torch.randn(3, 7)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        weights.append(layer.weight.detach())
        assert all(state["exp_avg"].device.type == "cpu" for state in optimizer.state.values())
    assert torch.equal(*weights)


def test_learning_rate_warms_up_then_decays_linearly() -> None:
    rates = [
        learning_rate_at(step, peak=1.0, warmup_steps=4, total_steps=14, final_fraction=0.1)
        for step in range(15)
    ]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4] == 1.0 and rates[9] == pytest.approx(0.55) and rates[14] == pytest.approx(0.1)


def test_learning_rate_is_constant_without_total_steps() -> None:
    assert learning_rate_at(10**6, peak=2e-4, warmup_steps=0) == 2e-4
