"""A scripted engine, weights to publish, and attempts around them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from oolong.contracts.rollout import PublishedWeights
from tests.support.virtual_time import VirtualTimeLoop
from tests.unit.rollout.fake_engine import FakeEngine
from tests.unit.rollout.harness import Harness, run_spec
from tests.unit.rollout.model_files import publish, write_model, write_rows


def pytest_asyncio_loop_factories() -> dict[str, type[VirtualTimeLoop]]:
    return {"virtual_time": VirtualTimeLoop}


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as engine:
        yield engine


@pytest.fixture
def versions(tmp_path: Path) -> Callable[[int], PublishedWeights]:
    return lambda version: publish(tmp_path / "weights", version)


@pytest.fixture
def new_harness(tmp_path: Path) -> Callable[..., Harness]:
    model = write_model(tmp_path / "model")
    rows = write_rows(tmp_path / "rows.jsonl", 60)

    def make(reward: Any = None, **sections: Any) -> Harness:
        return Harness(tmp_path / "attempt", run_spec(**sections), model, rows, reward=reward)

    return make
