"""A group's prompt is computed once, and nothing about it can hold its members up for good."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from gpu_agents.rollout.engines.client import EngineClient, ModelLimits
from gpu_agents.rollout.worker import prompt_prefill
from gpu_agents.rollout.worker.engine_counters import EngineCounters
from gpu_agents.rollout.worker.engine_handle import EngineHandle
from gpu_agents.rollout.worker.prompt_prefill import MIN_PROMPT_TOKENS, PromptPrefill
from gpu_agents.rollout.worker.rollout_state import RolloutState
from oolong.contracts.rollout import PublishedWeights
from tests.support.waiting import eventually
from tests.unit.rollout.fake_engine import FakeEngine
from tests.unit.rollout.harness import Harness

LONG = [97] * MIN_PROMPT_TOKENS


@pytest.fixture
async def handle(engine: FakeEngine) -> AsyncIterator[EngineHandle]:
    client = EngineClient(engine.port, engine.api_key, ModelLimits(vocabulary=264, context_tokens=1024))
    handle = EngineHandle(EngineCounters(clock=time.monotonic))
    handle.open(client, 0)
    yield handle
    await client.close()


def group(size: int = 4) -> list[RolloutState]:
    return [RolloutState(index=i) for i in range(size)]


async def test_one_prefill_precedes_all_rollouts(handle: EngineHandle, engine: FakeEngine) -> None:
    members = group()
    prefill = PromptPrefill(handle, LONG, members)
    engine.places = 0
    waiting = [asyncio.create_task(prefill.before(member)) for member in members]
    await eventually(lambda: engine.requests, "the prefill waits for a place")
    assert not any(task.done() for task in waiting)
    engine.places = 1
    await asyncio.gather(*waiting)
    assert engine.seen_inputs == [LONG]
    assert [member.rid for member in members] == [""] * 4
    assert handle.counters.generated_tokens == 0 and handle.counters.input_tokens == len(LONG)


async def test_the_worker_has_it_made_for_every_group(
    new_harness: Callable[..., Harness],
    engine: FakeEngine,
    versions: Callable[[int], PublishedWeights],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prompt_prefill, "MIN_PROMPT_TOKENS", 2)
    async with new_harness(rollout={"group_size": 4}) as run:
        run.start_worker(engine.port, engine.api_key)
        await run.trainer.announce(versions(0), "none")
        groups = await run.trainer.take(0)
    assert [engine.seen_inputs.count(group.prompt_token_ids) for group in groups] == [1 + 4] * len(groups)


@pytest.mark.parametrize(
    ("prompt", "members"),
    [
        pytest.param(LONG[1:], group(), id="a short prompt"),
        pytest.param(LONG, group(1), id="one member"),
        pytest.param(
            LONG, [RolloutState(index=0, token_ids=[97]), RolloutState(index=1)], id="one that is not resumed"
        ),
    ],
)
async def test_no_prefill_where_it_saves_nothing(
    handle: EngineHandle, engine: FakeEngine, prompt: list[int], members: list[RolloutState]
) -> None:
    prefill = PromptPrefill(handle, prompt, members)
    await asyncio.gather(*(prefill.before(member) for member in members))
    assert engine.seen_inputs == []


async def test_a_crashed_engine_releases_the_rollouts(handle: EngineHandle, engine: FakeEngine) -> None:
    members = group()
    prefill = PromptPrefill(handle, LONG, members)
    await handle.client.pause("retract")
    waiting = asyncio.gather(*(prefill.before(member) for member in members))
    await eventually(lambda: engine.seen_inputs, "the prefill has come to the engine")
    await engine.die()
    await asyncio.wait_for(waiting, 60)


async def test_an_abort_of_the_first_member_ends_it(handle: EngineHandle, engine: FakeEngine) -> None:
    engine.places = 0  # none is ever decoded
    members = group()
    prefill = PromptPrefill(handle, LONG, members)
    waiting = asyncio.gather(*(prefill.before(member) for member in members))
    await eventually(lambda: engine.requests, "the prefill waits for a place")
    assert members[0].rid in engine.requests
    await handle.abort([members[0].rid])
    await asyncio.wait_for(waiting, 60)
