"""The simulated lives of runs over many seeds: too long for the default lanes."""

from __future__ import annotations

import pytest

from tests.unit.rollout.simulated_lifecycle import check

SEEDS = 2000


@pytest.mark.parametrize("policy", ["keep", "drop", "wait"])
@pytest.mark.parametrize("block", range(10))
def test_a_disturbed_run_reaches_its_last_step(policy: str, block: int) -> None:
    for seed in range(1000 + block * SEEDS // 10, 1000 + (block + 1) * SEEDS // 10):
        check(policy, seed)
