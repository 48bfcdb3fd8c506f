"""Importance-ratio metrics of a step, on hand-computed examples."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from trainers.rl.metric_accumulator import MetricAccumulator

ONE_RANK = SimpleNamespace(sum=lambda values: list(values), max=lambda values: list(values))


def test_effective_sample_size_falls_if_few_tokens_carry_the_weight() -> None:
    behavior = torch.zeros(4)
    even, uneven = MetricAccumulator(), MetricAccumulator()
    even.add_proximal(behavior, behavior, torch.zeros(4, dtype=torch.bool))
    proximal = torch.tensor([math.log(3.0), 0.0, 0.0, 0.0])  # w = 3, 1, 1, 1
    uneven.add_proximal(proximal, behavior, torch.zeros(4, dtype=torch.bool))
    assert even.reduce(ONE_RANK)["importance_ratio/effective_sample_frac"] == pytest.approx(1.0)  # type: ignore[arg-type]
    found = uneven.reduce(ONE_RANK)  # type: ignore[arg-type]
    assert found["importance_ratio/effective_sample_frac"] == pytest.approx(6**2 / (4 * 12))
    assert found["importance_ratio/std"] == pytest.approx(math.sqrt(12 / 4 - 1.5**2))
    assert found["importance_ratio/mean"] == pytest.approx(1.5) and found[
        "importance_ratio/max"
    ] == pytest.approx(3.0)
