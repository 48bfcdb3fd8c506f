"""Versions that are LoRA adapters: one run's requests are interrupted, the engine is not (SEMANTICS section 4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_agents.rollout.engines import client as client_module
from gpu_agents.rollout.engines.client import Adapter
from gpu_agents.rollout.engines.errors import EngineError
from gpu_agents.rollout.worker.manifest import ExpectedTensors, InvalidWeights, check_weights
from oolong.contracts.rollout import PublishedWeights
from oolong.contracts.run_spec import LoraSection
from tests.unit.rollout.fake_engine import FakeEngine
from tests.unit.rollout.model_files import (
    ATTENTION,
    SHAPES,
    publish,
    publish_adapter,
    write_model,
    write_safetensors,
)
from tests.unit.rollout.simulation import assert_ledger_is_true
from tests.unit.rollout.worker.test_interruption_modes import LONG, STALE, Make, spanning, train

LORA = LoraSection(rank=3, targets=["q_proj"])


def write_model_with_attention(directory: Path) -> Path:
    if not directory.exists():
        write_model(directory)
    write_safetensors(directory / "model.safetensors", SHAPES | ATTENTION)
    return directory


@pytest.fixture
def adapters(tmp_path: Path, new_harness: Make) -> Callable[[int], PublishedWeights]:
    """Versions for the model of `new_harness`."""
    shapes = ExpectedTensors.of_adapter(write_model_with_attention(tmp_path / "model"), LORA).shapes
    return lambda version: publish_adapter(tmp_path / "weights", version, shapes)


async def test_requests_continue_from_their_tokens_under_the_next_adapter(
    new_harness: Make, adapters: Callable[[int], PublishedWeights]
) -> None:
    async with (
        FakeEngine(token_seconds=0.003) as engine,
        new_harness(staleness=STALE, rollout=LONG, model={"lora": LORA.model_dump()}) as run,
    ):
        engine.spread = 200
        groups = await train(run, engine, adapters, steps=6, enough=lambda seen: len(spanning(seen)) > 5)
        trajectories = [t for g in groups for t in g.trajectories]
        assert len(spanning(groups)) > 5
        assert all(t.policy_versions == sorted(t.policy_versions) for t in trajectories)
        first = spanning(groups)[0]
        switch = next(i for i, v in enumerate(first.policy_versions) if v != first.policy_versions[0])
        assert first.token_ids[switch] == 97, "a resumed scripted request starts its alphabet again"
        assert engine.loads == [] and engine.paused is None, "the base was loaded or the engine paused"
        await run.until(lambda: len(engine.adapters) == 1)  # of the newest version
        [name] = engine.adapters
        assert len({*engine.unloaded, name}) == len(engine.unloaded) + 1, "a name was used again"


async def test_without_interruption_each_request_keeps_its_adapter(
    new_harness: Make, adapters: Callable[[int], PublishedWeights]
) -> None:
    async with (
        FakeEngine(token_seconds=0.003) as engine,
        new_harness(
            staleness=STALE, rollout=LONG | {"interruptible": False}, model={"lora": LORA.model_dump()}
        ) as run,
    ):
        engine.spread = 200
        groups = await train(run, engine, adapters, steps=5)
        seen = [set(t.policy_versions) for g in groups for t in g.trajectories]
        assert all(len(versions) == 1 for versions in seen) and len(set.union(*seen)) > 1
        assert sum(t.interruptions for g in groups for t in g.trajectories) == 0


async def test_after_a_failed_load_the_earlier_adapter_serves_and_the_engine_is_stale(
    new_harness: Make, engine: FakeEngine, adapters: Callable[[int], PublishedWeights]
) -> None:
    async with new_harness(staleness={"max": 2}, model={"lora": LORA.model_dump()}) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(adapters(0), "none")
        await run.trainer.take(0)
        engine.fail_loads = True
        await run.trainer.announce(adapters(1))
        await run.until(lambda: run.controller.state.counters.failed_loads == 1)
        assert [name.partition("-")[0] for name in engine.adapters] == ["v00000000"]
        engine.fail_loads = False
        groups = await run.trainer.take(1)
        assert {v for g in groups for t in g.trajectories for v in t.policy_versions} == {0}
        await run.trainer.announce(adapters(2))
        await run.until(lambda: not any(one.stale for one in run.controller.state.engines.all()))
        await run.until(lambda: [name.partition("-")[0] for name in engine.adapters] == ["v00000002"])
        assert_ledger_is_true(run.controller)


def test_an_adapter_needs_every_tensor_of_its_layers(tmp_path: Path) -> None:
    expected = ExpectedTensors.of_adapter(write_model_with_attention(tmp_path / "model"), LORA)
    assert len(expected.shapes) == 2 * 3  # q_proj and what is fused with it
    check_weights(publish_adapter(tmp_path / "whole", 1, expected.shapes), expected)
    first = min(expected.shapes)
    missing = {name: shape for name, shape in expected.shapes.items() if name != first}
    with pytest.raises(InvalidWeights, match="lacks 1 of 6 tensors"):
        check_weights(publish_adapter(tmp_path / "missing", 1, missing), expected)
    other_rank = dataclasses.replace(expected, shapes=expected.shapes | {first: (4, 2)})
    with pytest.raises(InvalidWeights, match="has shape"):
        check_weights(publish_adapter(tmp_path / "rank", 1, expected.shapes), other_rank)
    with pytest.raises(InvalidWeights, match="lacks 6 of 6 tensors"):
        check_weights(publish(tmp_path / "model-weights", 1), expected)


@pytest.mark.parametrize("spans", [[("boot", 0, 1), ("2", 1, 2)], [("2", 0, 2)]])
def test_tokens_of_other_base_weights_are_of_no_version(spans: list[tuple[str, int, int]]) -> None:
    reply = client_module._Generated(
        output_ids=[97, 257],
        meta_info=client_module._Meta(
            finish_reason=client_module._FinishReason(type="stop"),
            weight_versions=[client_module._Span(*span) for span in spans],
            output_token_logprobs=[(-0.5, 97, None)] * 2,
        ),
    )
    with pytest.raises(EngineError, match="v3-1 was sampled on the weights"):
        client_module._generation(reply, rid="r", only_version=None, adapter=Adapter(name="v3-1", version=3))
