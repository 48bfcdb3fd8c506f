"""Many examples of the state machine of a pool: too long for the default lanes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.unit.control_plane.conftest import make_alice, standing_clock
from tests.unit.control_plane.runs.pool_machine import World, check

SEEDS = 20
EXAMPLES, STEPS = 15, 40  # of a seed


@pytest.fixture
def world(db: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, data_dir=tmp_path, min_runtime_seconds=0)
    clock = standing_clock(monkeypatch)
    return World(make_alice(), clock)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_pool_under_random_events_keeps_its_invariants(world: World, seed: int) -> None:
    check(world, examples=EXAMPLES, steps=STEPS, seed=seed)
