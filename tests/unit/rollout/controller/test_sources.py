"""A run that weights the sources of its dataset: what is sampled, and what is measured of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpu_agents.rewards.reward import Completion
from gpu_agents.rollout.chat_template import ChatTemplate
from gpu_agents.rollout.controller.prompt_store import InvalidPrompts, PromptStore
from gpu_agents.rollout.controller.snapshot import InvalidSnapshot
from gpu_agents.rollout.dataset_rows import read_rows
from oolong.contracts.metrics import find_metric
from oolong.contracts.rollout import PublishedWeights
from oolong.contracts.telemetry import Points
from tests.unit.rollout.fake_engine import FakeEngine
from tests.unit.rollout.harness import Harness
from tests.unit.rollout.model_files import write_model, write_rows
from tests.unit.rollout.simulation import new_controller, rules

WEIGHTS = {"math/a": 3.0, "code": 1.0, "old": 0.0}


async def test_a_batch_has_the_sources_by_weight_and_the_mean_reward_of_each(
    new_harness: Callable[..., Harness],
    engine: FakeEngine,
    versions: Callable[[int], PublishedWeights],
    tmp_path: Path,
) -> None:
    def reward(completion: Completion) -> float:
        return 1.0 if completion.row % 3 == 0 else 0.25

    dataset = {"version": "d@1", "weights": WEIGHTS}
    harness = new_harness(reward=reward, dataset=dataset, trainer={"groups_per_step": 4, "minibatches": 1})
    write_rows(harness.dataset_file, 60, sources=list(WEIGHTS))
    async with harness as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        groups = await run.trainer.take(0)
        await run.trainer.announce(versions(1))
        sources = Counter(list(WEIGHTS)[group.row % 3] for group in groups)
        assert sources["old"] == 0 and sources["math/a"] + sources["code"] == 4
        points = next(
            line.values
            for line in run.lines("controller")
            if isinstance(line, Points) and line.axis == "step" and line.x == 1
        )
    measured = {name: value for name, value in points.items() if "/by_source/" in name}
    assert measured == {
        **{f"group/by_source/{name}": float(count) for name, count in sources.items() if count},
        **{
            f"reward/by_source/{name}": {"math/a": 1.0, "code": 0.25}[name]
            for name, count in sources.items()
            if count
        },
    }
    assert all(find_metric(name) for name in measured)


def test_a_weighted_source_that_the_file_does_not_have_is_refused(tmp_path: Path) -> None:
    template = ChatTemplate(write_model(tmp_path / "model"))
    rows = read_rows(write_rows(tmp_path / "rows.jsonl", 6, sources=["math/a", "code"]), split="train")
    store = PromptStore(rows, template)
    assert {name: len(source.rows) for name, source in store.by_source({"code": 2.0}).items()} == {"code": 3}
    with pytest.raises(InvalidPrompts, match=r"dataset\.weights names 'law'"):
        store.by_source({"code": 1.0, "law": 1.0})


def test_a_snapshot_of_other_sources_is_refused() -> None:
    snapshot = new_controller(rules()).state.groups.snapshot(0)
    other = replace(snapshot, cursors={"math/a": snapshot.cursors[""]})
    with pytest.raises(InvalidSnapshot, match="sources"):
        new_controller(rules(), restored=other)
