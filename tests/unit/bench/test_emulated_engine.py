"""The emulated device keeps the real server's contract, and the model's time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_agents.rewards import exact_match
from gpu_agents.rewards.reward import Completion
from gpu_agents.rollout.chat_template import ChatTemplate
from gpu_agents.rollout.engines.client import EngineClient, Sampling
from tests.bench.device_model import DeviceModel, Lengths
from tests.bench.emulated_engine import EmulatedEngine
from tests.integration.rollout.conformance import CHECKS, LIMITS, Subject
from tests.unit.rollout.fake_engine import FakeRequest
from tests.unit.rollout.model_files import write_model

FAST = DeviceModel(
    step_seconds=0.001, sequence_seconds=0.0, context_token_seconds=0.0, prefill_token_seconds=0.0,
    tokens_per_emitted=1, prompt_tokens=1, real_seconds_per_second=1.0,
)  # fmt: skip
LENGTHS = Lengths(mean=60, sigma=0.5, limit=100)


def engine_of(device: DeviceModel, *, max_running: int = 64) -> EmulatedEngine:
    return EmulatedEngine(
        device=device, lengths=LENGTHS, max_running=max_running, load_seconds=0.0, api_key="key"
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_emulated_device_has_the_shape_of_the_real_server(
    check: Callable[[Subject], Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is caught up: after a late turn of the loop one token comes, not all that are left.
    monkeypatch.setattr("tests.bench.emulated_engine.FORGIVEN_SECONDS", 0.0)
    for version in (1, 2):
        (tmp_path / str(version)).mkdir()
        (tmp_path / str(version) / "config.json").write_text("{}")
    async with engine_of(FAST) as engine:
        client = EngineClient(engine.port, "key", LIMITS)
        await client.update_weights(str(tmp_path / "1"), version=1, flush_cache=True)
        weights = {version: tmp_path / str(version) for version in (1, 2)}
        subject = Subject(client, engine.port, weights, tmp_path / "1", {}, a_moment=0.05, a_step=0.02)
        subject.outputs = lambda: [request.output for request in engine.running]
        await check(subject)
        await client.close()


async def generate(
    client: EngineClient, prompt: list[int], count: int, *, tokens: int = 100
) -> list[list[int]]:
    sampling = Sampling(max_new_tokens=tokens, temperature=1.0)
    answers = await asyncio.gather(
        *(client.generate(prompt, sampling, rid=f"{member:032d}") for member in range(count))
    )
    return [answer.token_ids for answer in answers]


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "config.json").write_text("{}")
    return tmp_path / "v1"


async def test_a_batch_takes_the_time_that_the_model_says(version_1: Path) -> None:
    """The longest of the group, one step a token, each step as long as batch and context make it."""
    device = replace(FAST, step_seconds=0.004, sequence_seconds=0.0002)
    async with engine_of(device) as engine:
        client = EngineClient(engine.port, "key", LIMITS)
        await client.update_weights(str(version_1), version=1, flush_cache=True)
        began = time.monotonic()
        lengths = sorted(len(tokens) for tokens in await generate(client, [1, 2, 3], 8))
        spent = time.monotonic() - began
        await client.close()
    assert lengths == sorted(LENGTHS.of((1, 2, 3), member) for member in range(8))
    bursts = engine.bursts["bursts"]
    assert engine.bursts["batch"] == sum(lengths) and bursts >= lengths[-1]
    worked = device.step_seconds * bursts + device.sequence_seconds * sum(lengths)
    assert engine.worked["decode"] == pytest.approx(worked) and spent >= 0.95 * worked


async def test_requests_beyond_the_batch_wait_their_turn(version_1: Path) -> None:
    async with engine_of(FAST, max_running=2) as engine:
        client = EngineClient(engine.port, "key", LIMITS)
        await client.update_weights(str(version_1), version=1, flush_cache=True)
        tokens = sum(len(one) for one in await generate(client, [7, 8], 6))
        await client.close()
    assert engine.bursts["batch"] == tokens and engine.bursts["bursts"] >= tokens / 2


async def test_an_interruption_costs_the_prefill_of_what_was_running(
    version_1: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = replace(FAST, prefill_token_seconds=0.0005)
    reached, go_on = asyncio.Event(), asyncio.Event()
    async with engine_of(device) as engine:
        decode = engine._decode

        async def held(batch: list[FakeRequest]) -> None:
            """Begins with all four, and stands still at 24 tokens until the pause has come, however late that is."""
            while len(engine.running) < 4 and not go_on.is_set():
                await asyncio.sleep(0.001)
            if engine.emitted >= 24:
                reached.set()
                await go_on.wait()
            await decode(batch)

        monkeypatch.setattr(engine, "_decode", held)
        client = EngineClient(engine.port, "key", LIMITS)
        await client.update_weights(str(version_1), version=1, flush_cache=True)
        generation = asyncio.create_task(generate(client, [4, 5, 6], 4))
        await asyncio.wait_for(reached.wait(), 60)
        await client.pause("retract")
        go_on.set()
        context = sum(1 + len(request.output) for request in engine.running)
        assert len(engine.running) == 4 and context > 20
        await client.update_weights(str(version_1), version=2, flush_cache=True)
        await client.resume()
        await generation
        await client.close()
    assert engine.worked["re_prefill"] == pytest.approx(device.prefill_seconds(context))
    assert engine.worked["prefill"] == pytest.approx(device.prefill_seconds(4))


async def test_half_of_the_completions_are_right(tmp_path: Path, version_1: Path) -> None:
    """So that groups have a signal and the trainer really trains."""
    template = ChatTemplate(write_model(tmp_path / "model"))
    score = exact_match.build({})
    async with engine_of(FAST) as engine:
        client = EngineClient(engine.port, "key", LIMITS)
        await client.update_weights(str(version_1), version=1, flush_cache=True)
        texts = [template.decode(tokens) for tokens in await generate(client, [9, 9], 8)]
        await client.close()
    scores = [score(Completion(prompt="", text=text, answer="1", finish_reason="stop")) for text in texts]
    assert sum(scores) == 4
