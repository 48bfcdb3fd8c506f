"""The real SGLang keeps the contract that the worker, and the scripted engine of the unit tests, rely on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from gpu_agents.rollout.engines.client import EngineClient, Sampling
from gpu_agents.rollout.engines.errors import EngineTooOld
from tests.integration.rollout.conformance import (
    ADAPTER_CHECKS,
    CHECKS,
    LIMITS,
    PROMPT,
    Missed,
    Subject,
    a_retract_load_splits_a_running_request_into_spans,
    load,
    new_rid,
)
from tests.integration.rollout.conftest import RealEngine, TinyModel
from tests.support import uninvited
from tests.support.listening import beyond_loopback, listeners

pytestmark = pytest.mark.engine


class BeforeSpans(EngineClient):
    """For SGLang before 0.5.19, whose replies name one version, that of their end: right as long as no load splits
    them. The pinned version is never asked through it; see `docs/how-to/gpu-tests.md` for running another."""

    async def _post(self, path: str, body: dict[str, Any], timeout: float | None = None) -> bytes:
        content = await super()._post(path, body, timeout)
        if path != "generate":
            return content
        reply = json.loads(content)
        meta = reply["meta_info"]
        assert "weight_versions" not in meta
        end = len(reply["output_ids"])
        meta["weight_versions"] = [{"version": meta["weight_version"], "start": 0, "end": end}]
        return json.dumps(reply).encode()


@pytest.fixture
async def subject(real_engine: RealEngine, tiny: TinyModel) -> Subject:
    client = EngineClient(real_engine.port, real_engine.api_key, LIMITS)
    weights = {version: tiny.version(version) for version in (1, 2)}
    adapters = {version: tiny.adapter(version) for version in (1, 2)}
    subject = Subject(client, real_engine.port, weights, tiny.base, adapters, a_moment=0.35, a_step=0.1)
    await client.resume()
    await load(subject, 1)
    try:
        subject.a_moment = await a_fifth_of_a_long_request(client)
    except EngineTooOld:
        await client.close()
        subject.client = BeforeSpans(real_engine.port, real_engine.api_key, LIMITS)
        subject.a_moment = await a_fifth_of_a_long_request(subject.client)
    return subject


async def a_fifth_of_a_long_request(client: EngineClient) -> float:
    """Its seconds, however busy the machine is now."""
    began = time.monotonic()
    sampling = Sampling(max_new_tokens=80, temperature=1.0, ignore_eos=True)
    await client.generate(PROMPT, sampling, rid=new_rid())
    return time.monotonic() - began


@pytest.mark.parametrize("check", [*CHECKS, *ADAPTER_CHECKS], ids=lambda check: check.__name__)
async def test_the_real_server_keeps_the_contract(
    check: Callable[[Subject], Awaitable[None]], subject: Subject
) -> None:
    if (
        isinstance(subject.client, BeforeSpans)
        and check is a_retract_load_splits_a_running_request_into_spans
    ):
        pytest.skip("this SGLang is older than 0.5.19: it reports no version spans")
    for _ in range(10):
        with suppress(Missed):
            await check(subject)
            break
        # The machine may have stood still while this was measured.
        subject.a_moment = await a_fifth_of_a_long_request(subject.client)
    else:
        pytest.fail("none of ten requests was caught while it ran")
    await subject.client.close()


async def test_a_stop_token_is_among_the_returned_tokens(subject: Subject, real_engine: RealEngine) -> None:
    """The trainer needs its log-probability. A random model stops soon at a high temperature."""
    for _ in range(20):
        sampling = Sampling(max_new_tokens=600, temperature=5.0)
        generation = await subject.client.generate([258, 97, 259], sampling, rid=new_rid())
        if generation.finish == "stop":
            assert generation.token_ids[-1] == 257
            break
    else:
        pytest.fail("none of 20 completions of up to 600 tokens stopped")
    await subject.client.close()


async def test_an_engine_answers_nothing_without_its_key(real_engine: RealEngine) -> None:
    """Not its health, and no WebSocket: jobs of other attempts share the loopback interface."""
    found = subprocess.run(
        [sys.executable, uninvited.__file__, str(real_engine.port)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(found.stdout) == {}


async def test_the_engine_listens_on_loopback_and_hides_its_key(real_engine: RealEngine) -> None:
    import psutil

    assert real_engine.port in [port for _, _, port in listeners(real_engine.pid)]
    assert beyond_loopback(real_engine.pid) == []
    arguments = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not any(real_engine.api_key in line for line in arguments)
