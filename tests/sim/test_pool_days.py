"""Weeks of simulated pools over many seeds: too long for the default lanes."""

from __future__ import annotations

import random

import pytest

from control_plane.fleet.snapshot import TeamQuota
from tests.unit.control_plane.fleet.simulated_pool import SimulatedPool
from tests.unit.control_plane.fleet.synthetic_load import HOUR, Load, TeamLoad

SEEDS = 40


def random_load(seed: int) -> Load:
    rng = random.Random(f"load-{seed}")
    nodes, slots = rng.randint(3, 12), rng.choice([2, 4, 8])
    capacity, count = nodes * slots, rng.randint(2, 5)
    teams = {}
    for number in range(count):
        nominal = rng.choice([0, capacity // count, capacity // (2 * count)])
        limit = rng.choice([None, None, max(slots, nominal)])
        lending = rng.choice([None, None, nominal // 2])
        teams[f"team-{number}"] = TeamLoad(rng.uniform(0.1, 1), TeamQuota(nominal, limit, lending))
    return Load(
        teams, days=2, nodes=nodes, slots_per_node=slots,
        slots={size: 1 / size for size in (1, 2, 4, 8) if size <= slots},
        offered_load=rng.uniform(0.6, 1.2), node_mtbf=rng.choice([24, 200]) * HOUR,
        elastic_share=rng.choice([0.0, 0.5]), playground_share=rng.uniform(0, 0.3),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_run_starves_and_no_plan_is_unsound(seed: int) -> None:
    report = SimulatedPool(random_load(seed), seed=seed).play()
    assert report.runs > 0
