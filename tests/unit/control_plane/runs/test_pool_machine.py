"""Short examples of the state machine of a pool; tests/sim has many."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.unit.control_plane.runs.pool_machine import World, check


@pytest.fixture
def world(alice: Any, clock: Any, settings: Any) -> World:
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, min_runtime_seconds=0)
    return World(alice, clock)


def test_a_pool_under_random_events_keeps_its_invariants(world: World) -> None:
    check(world, examples=3, steps=10)
