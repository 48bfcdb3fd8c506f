"""What the worker relies on in an engine's HTTP API. Each check runs against the scripted server of the unit tests
and against the real SGLang, so that the script cannot drift.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpu_agents.rollout.engines.client import (
    BOOT_VERSION,
    Adapter,
    EngineClient,
    Generation,
    ModelLimits,
    Sampling,
)
from gpu_agents.rollout.engines.errors import EngineError, UnsafeEngineRequest
from tests.support.waiting import eventually

LIMITS = ModelLimits(vocabulary=264, context_tokens=1024)
PROMPT = [258, 97, 53, 32, 98, 55, 259]


@dataclass
class Subject:
    """An engine under test, and two versions of weights that it can load."""

    client: EngineClient
    port: int
    weights: dict[int, Path]  # 1 and 2
    base: Path  # the weights of its boot
    adapters: dict[int, Path]  # 1 and 2, for the base
    a_moment: float  # seconds in which a request gets some tokens, but not 400
    a_step: float = 0.5  # seconds in which an abort comes back
    outputs: Callable[[], list[list[int]]] | None = (
        None  # of what runs, where a test can look into the engine
    )


class Missed(Exception):
    """What was to happen to a running request came when it had ended, or had no token yet: to be tried again where a
    test cannot look into the engine."""


def new_rid() -> str:
    return uuid.uuid4().hex


def long_request(subject: Subject, rid: str, *, tokens: int = 400) -> asyncio.Task[Generation]:
    sampling = Sampling(max_new_tokens=tokens, temperature=1.0, ignore_eos=True)
    return asyncio.create_task(subject.client.generate(PROMPT, sampling, rid=rid))


async def tokens_come(subject: Subject, *, requests: int = 1) -> None:
    """Until so many run and each has tokens; of a real server it is only known that a moment is enough."""
    if (outputs := subject.outputs) is None:
        await asyncio.sleep(subject.a_moment)
        return
    await eventually(
        lambda: len(outputs()) == requests and all(outputs()), lambda: f"{requests} with tokens: {outputs()}"
    )


def taken_back(generation: Generation) -> Generation:
    if generation.finish == "length" or not generation.token_ids:
        raise Missed(f"{len(generation.token_ids)} tokens, finish {generation.finish}")
    return generation


async def load(subject: Subject, version: int) -> None:
    await subject.client.pause("retract")
    await subject.client.update_weights(str(subject.weights[version]), version=version, flush_cache=True)
    await subject.client.resume()


async def load_base(client: EngineClient, base: Path) -> None:
    """As after a boot. Paused: an engine that cannot flush its cache, because a request of a check still runs, ends."""
    await client.pause("retract")
    await client._post(
        "update_weights_from_disk",
        {"model_path": str(base), "weight_version": BOOT_VERSION, "flush_cache": True},
        timeout=60,
    )
    await client.resume()


async def load_adapter(subject: Subject, version: int) -> Adapter:
    adapter = Adapter(name=f"{version}-{new_rid()}", version=version)
    await subject.client.load_adapter(adapter, str(subject.adapters[version]))
    return adapter


async def a_load_changes_the_label_and_tokens_carry_it(subject: Subject) -> None:
    for version in (1, 2):
        await load(subject, version)
        assert await subject.client.weight_version() == str(version)
        generation = await subject.client.generate(
            PROMPT, Sampling(max_new_tokens=5, temperature=1.0, ignore_eos=True), rid=new_rid()
        )
        assert generation.versions == [version] * 5
        assert len(generation.token_ids) == len(generation.logprobs) == 5
        assert (generation.finish, generation.retractions) == ("length", 0)


async def a_retract_load_splits_a_running_request_into_spans(subject: Subject) -> None:
    await load(subject, 1)
    request = long_request(subject, new_rid())
    await tokens_come(subject)
    await load(subject, 2)
    generation = await request
    if len(set(generation.versions)) == 1:
        raise Missed(f"all of version {generation.versions[0]}")
    assert set(generation.versions) == {1, 2}
    assert generation.versions == sorted(generation.versions)
    assert len(generation.token_ids) == 400
    assert generation.retractions == 1


async def a_new_request_waits_through_a_pause_while_control_calls_answer(subject: Subject) -> None:
    await load(subject, 1)
    await subject.client.pause("retract")
    await subject.client.pause("retract")
    request = long_request(subject, new_rid(), tokens=3)
    await asyncio.sleep(subject.a_moment)
    assert not request.done()
    assert await subject.client.weight_version() == "1"
    await subject.client.update_weights(str(subject.weights[2]), version=2, flush_cache=True)
    await subject.client.resume()
    await subject.client.resume()
    assert (await request).versions == [2, 2, 2]


async def an_aborted_running_request_returns_what_it_has(subject: Subject) -> None:
    await load(subject, 1)
    rid = new_rid()
    request = long_request(subject, rid)
    await tokens_come(subject)
    await subject.client.abort(rid)
    generation = taken_back(await asyncio.wait_for(request, 60))
    assert generation.finish == "abort"
    assert 0 < len(generation.token_ids) < 400
    assert generation.versions == [1] * len(generation.token_ids)


async def a_retracted_request_can_be_aborted_during_the_pause(subject: Subject) -> None:
    """Its reply lacks num_retractions; its tokens are all there."""
    await load(subject, 1)
    rid = new_rid()
    request = long_request(subject, rid)
    await tokens_come(subject)
    await subject.client.pause("retract")
    await asyncio.sleep(subject.a_step)
    await subject.client.abort(rid)
    generation = await asyncio.wait_for(request, 60)
    await subject.client.resume()
    assert taken_back(generation).finish == "abort"


async def an_abort_of_an_unknown_request_is_no_error(subject: Subject) -> None:
    await subject.client.abort(new_rid())
    await subject.client.abort_all()


async def a_request_goes_on_from_its_tokens(subject: Subject) -> None:
    await load(subject, 1)
    rid = new_rid()
    request = long_request(subject, rid)
    await tokens_come(subject)
    await subject.client.abort(rid)
    first = taken_back(await request)
    left = 400 - len(first.token_ids)
    rest = await subject.client.generate(
        PROMPT + first.token_ids,
        Sampling(max_new_tokens=left, temperature=1.0, ignore_eos=True),
        rid=new_rid(),
    )
    assert len(rest.token_ids) == left and rest.finish == "length"


async def a_duplicate_request_id_is_refused(subject: Subject) -> None:
    rid = new_rid()
    request = long_request(subject, rid)
    await tokens_come(subject)
    try:
        await subject.client.generate(PROMPT, Sampling(max_new_tokens=1, temperature=1.0), rid=rid)
    except EngineError as error:
        refusal = str(error)
    else:
        raise Missed("the first one had ended, or nothing was refused")
    assert "400" in refusal
    await subject.client.abort(rid)
    await request


async def a_load_from_a_wrong_path_is_refused_and_survived(subject: Subject) -> None:
    await load(subject, 1)
    await subject.client.pause("retract")
    with pytest.raises(EngineError, match="400"):
        await subject.client.update_weights("/nowhere", version=7, flush_cache=True)
    await subject.client.resume()
    assert await subject.client.weight_version() == "1"


async def another_key_is_refused(subject: Subject) -> None:
    stranger = EngineClient(subject.port, "another", LIMITS)
    try:
        with pytest.raises(EngineError, match="401"):
            await stranger.generate(PROMPT, Sampling(max_new_tokens=1, temperature=1.0), rid=new_rid())
        with pytest.raises(EngineError, match="401"):
            await stranger.pause("retract")
    finally:
        await stranger.close()


async def ids_outside_the_vocabulary_never_reach_the_engine(subject: Subject) -> None:
    for bad in ([264], [-1], [], [1.0], [True]):
        with pytest.raises(UnsafeEngineRequest):
            await subject.client.generate(bad, Sampling(max_new_tokens=1, temperature=1.0), rid=new_rid())  # type: ignore[arg-type]
    with pytest.raises(UnsafeEngineRequest, match="context"):
        await subject.client.generate([97] * 1020, Sampling(max_new_tokens=5, temperature=1.0), rid=new_rid())
    assert await subject.client.weight_version()


async def an_abort_pause_returns_what_runs_and_holds_what_comes(subject: Subject) -> None:
    """The pause mode of older servers; the worker continues from the tokens with a new request."""
    await load(subject, 1)
    running = long_request(subject, new_rid())
    await tokens_come(subject)
    await subject.client.pause("abort")
    first = await asyncio.wait_for(running, 60)
    waiting = long_request(subject, new_rid(), tokens=3)
    await asyncio.sleep(subject.a_moment)
    assert not waiting.done()
    await subject.client.update_weights(str(subject.weights[2]), version=2, flush_cache=True)
    await subject.client.resume()
    assert (await waiting).versions == [2, 2, 2]
    assert taken_back(first).finish == "abort"
    assert first.versions == [1] * len(first.token_ids)


async def all_requests_are_taken_back_at_once(subject: Subject) -> None:
    await load(subject, 1)
    requests = [
        asyncio.create_task(
            subject.client.generate(
                PROMPT,
                Sampling(max_new_tokens=400, temperature=1.0, ignore_eos=True),
                rid=new_rid(),
                only_version=1,
            )
        )
        for _ in range(8)
    ]
    await tokens_come(subject, requests=8)
    await subject.client.abort_all()
    for generation in map(taken_back, await asyncio.wait_for(asyncio.gather(*requests), 60)):
        assert generation.finish == "abort"
        assert generation.versions == [1] * len(generation.token_ids)


async def a_word_that_all_tokens_are_of_one_version_is_checked(subject: Subject) -> None:
    await load(subject, 2)
    sampling = Sampling(max_new_tokens=3, temperature=1.0, ignore_eos=True)
    whole = await subject.client.generate(PROMPT, sampling, rid=new_rid(), only_version=2)
    assert whole.versions == [2, 2, 2]
    with pytest.raises(EngineError, match="version"):
        await subject.client.generate(PROMPT, sampling, rid=new_rid(), only_version=1)


async def a_shared_prefix_is_found_in_the_cache_until_a_load_flushes_it(subject: Subject) -> None:
    await load(subject, 1)
    prompt = PROMPT + list(range(40, 90))
    sampling = Sampling(max_new_tokens=2, temperature=1.0, ignore_eos=True)

    async def cached() -> int:
        return (await subject.client.generate(prompt, sampling, rid=new_rid())).cached_tokens

    assert await cached() == 0
    assert len(prompt) / 2 < await cached() < len(prompt)
    await load(subject, 2)
    assert await cached() == 0


async def after_a_prefill_every_member_of_a_group_finds_the_prompt_in_the_cache(subject: Subject) -> None:
    await load(subject, 1)
    prompt = PROMPT + [40 + i % 50 for i in range(120)]
    assert (await subject.client.prefill(prompt, rid=new_rid())).cached_tokens == 0
    sampling = Sampling(max_new_tokens=20, temperature=1.0, ignore_eos=True)
    members = await asyncio.gather(
        *(subject.client.generate(prompt, sampling, rid=new_rid()) for _ in range(8))
    )
    assert [member.cached_tokens for member in members] == [len(prompt) - 1] * 8


async def a_prefill_waits_through_a_pause(subject: Subject) -> None:
    await load(subject, 1)
    prompt = PROMPT + list(range(90, 190))
    await subject.client.pause("retract")
    prefill = asyncio.create_task(subject.client.prefill(prompt, rid=new_rid()))
    await asyncio.sleep(subject.a_step)
    assert not prefill.done()
    await subject.client.resume()
    assert (await asyncio.wait_for(prefill, 60)).cached_tokens == 0


async def an_engine_says_how_busy_it_is(subject: Subject) -> None:
    async with asyncio.timeout(60):  # what an earlier check took back may leave the engine a moment later
        while (idle := await subject.client.load()) is None or idle.running_requests:
            await asyncio.sleep(subject.a_step)
    requests = [long_request(subject, new_rid()) for _ in range(4)]
    await tokens_come(subject, requests=4)
    busy = await subject.client.load()
    await subject.client.abort_all()
    for generation in await asyncio.gather(*requests):
        taken_back(generation)
    assert busy is not None
    assert busy.running_requests + busy.waiting_requests == 4
    assert 0 < busy.kv_cache_frac < 1


async def an_adapter_loads_beside_a_request_of_another_one(subject: Subject) -> None:
    """The old one unloads once its request is taken back; its tokens stay its own."""
    await load_base(subject.client, subject.base)
    old = await load_adapter(subject, 1)
    sampling = Sampling(max_new_tokens=400, temperature=1.0, ignore_eos=True)
    rid = new_rid()
    running = asyncio.create_task(subject.client.generate(PROMPT, sampling, rid=rid, adapter=old))
    await tokens_come(subject)
    new = await load_adapter(subject, 2)
    short = Sampling(max_new_tokens=3, temperature=1.0, ignore_eos=True)
    beside = await subject.client.generate(PROMPT, short, rid=new_rid(), adapter=new)
    assert beside.versions == [2, 2, 2]
    await subject.client.abort(rid)
    first = await asyncio.wait_for(running, 60)
    await asyncio.wait_for(subject.client.unload_adapter(old), 60)
    assert first.versions == [1] * len(first.token_ids)
    with pytest.raises(EngineError, match="400"):
        await subject.client.load_adapter(new, str(subject.adapters[1]))
    await subject.client.unload_adapter(new)
    taken_back(first)


async def a_prefix_in_the_cache_belongs_to_its_adapter(subject: Subject) -> None:
    await load_base(subject.client, subject.base)
    adapters = [await load_adapter(subject, version) for version in (1, 2)]
    prompt = PROMPT + [45 + i % 50 for i in range(120)]
    first = await subject.client.prefill(prompt, rid=new_rid(), adapter=adapters[0])
    again, other = [
        await subject.client.prefill(prompt, rid=new_rid(), adapter=adapter) for adapter in adapters
    ]
    assert (first.cached_tokens, other.cached_tokens) == (0, 0)
    assert again.cached_tokens > len(prompt) / 2
    for adapter in adapters:
        await subject.client.unload_adapter(adapter)


async def an_adapter_on_other_weights_than_those_of_the_boot_is_no_version(subject: Subject) -> None:
    await load_base(subject.client, subject.base)
    adapter = await load_adapter(subject, 1)
    await load(subject, 2)
    with pytest.raises(EngineError, match="was sampled on the weights"):
        await subject.client.generate(
            PROMPT, Sampling(max_new_tokens=3, temperature=1.0), rid=new_rid(), adapter=adapter
        )
    await subject.client.unload_adapter(adapter)


async def an_idle_engine_flushes(subject: Subject) -> None:
    await subject.client.flush_cache()


CHECKS: list[Callable[[Subject], Awaitable[None]]] = [
    a_load_changes_the_label_and_tokens_carry_it,
    a_retract_load_splits_a_running_request_into_spans,
    a_new_request_waits_through_a_pause_while_control_calls_answer,
    an_aborted_running_request_returns_what_it_has,
    a_retracted_request_can_be_aborted_during_the_pause,
    an_abort_of_an_unknown_request_is_no_error,
    a_request_goes_on_from_its_tokens,
    a_duplicate_request_id_is_refused,
    a_load_from_a_wrong_path_is_refused_and_survived,
    another_key_is_refused,
    ids_outside_the_vocabulary_never_reach_the_engine,
    an_abort_pause_returns_what_runs_and_holds_what_comes,
    all_requests_are_taken_back_at_once,
    a_word_that_all_tokens_are_of_one_version_is_checked,
    a_shared_prefix_is_found_in_the_cache_until_a_load_flushes_it,
    after_a_prefill_every_member_of_a_group_finds_the_prompt_in_the_cache,
    a_prefill_waits_through_a_pause,
    an_engine_says_how_busy_it_is,
    an_idle_engine_flushes,
]
ADAPTER_CHECKS: list[Callable[[Subject], Awaitable[None]]] = [
    an_adapter_loads_beside_a_request_of_another_one,
    a_prefix_in_the_cache_belongs_to_its_adapter,
    an_adapter_on_other_weights_than_those_of_the_boot_is_no_version,
]
