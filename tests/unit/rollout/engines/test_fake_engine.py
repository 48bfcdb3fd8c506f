"""The scripted engine passes the checks that the real one passes (tests/integration/rollout/test_engine.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gpu_agents.rollout.engines import client as client_module
from gpu_agents.rollout.engines.client import EngineClient, Sampling
from gpu_agents.rollout.engines.errors import EngineError, EngineTooOld
from tests.integration.rollout.conformance import ADAPTER_CHECKS, CHECKS, LIMITS, Subject
from tests.unit.rollout.fake_engine import FakeEngine


@pytest.mark.parametrize("check", [*CHECKS, *ADAPTER_CHECKS], ids=lambda check: check.__name__)
async def test_the_script_has_the_shape_of_the_real_server(
    check: Callable[[Subject], Awaitable[None]], tmp_path: Path
) -> None:
    adapters = {}
    for version in (0, 1, 2):
        (tmp_path / str(version)).mkdir()
        (tmp_path / str(version) / "config.json").write_text("{}")
        adapters[version] = tmp_path / f"adapter-{version}"
        adapters[version].mkdir()
        (adapters[version] / "adapter_config.json").write_text("{}")
    async with FakeEngine(token_seconds=0.0005) as engine:
        client = EngineClient(engine.port, engine.api_key, LIMITS)
        await client.update_weights(str(tmp_path / "1"), version=1, flush_cache=True)
        weights = {version: tmp_path / str(version) for version in (1, 2)}
        subject = Subject(client, engine.port, weights, tmp_path / "0", adapters, a_moment=0.03, a_step=0.01)
        subject.outputs = lambda: [request.output for request in engine.running]
        await check(subject)
        await client.close()


@pytest.mark.parametrize(
    ("spans", "logprobs", "says"),
    [
        ([("1", 0, 1)], [-0.5, -0.5], "do not cover 2 tokens"),
        ([("1", 0, 3)], [-0.5, -0.5], "do not cover 2 tokens"),
        ([("boot", 0, 2)], [-0.5, -0.5], "before any load"),
        ([("1", 0, 2)], [-0.5], "1 logprobs for 2 tokens"),
        ([("1", 0, 2)], [-0.5, float("nan")], "not finite"),
        ([("1", 0, 2)], [-0.5, float("-inf")], "not finite"),
    ],
)
def test_a_reply_that_contradicts_itself_is_no_trajectory(
    spans: list[tuple[str, int, int]], logprobs: list[float], says: str
) -> None:
    meta = client_module._Meta(
        finish_reason=client_module._FinishReason(type="stop"),
        weight_versions=[client_module._Span(*span) for span in spans],
        output_token_logprobs=[(logprob, 97, None) for logprob in logprobs],
    )
    reply = client_module._Generated(output_ids=[97, 257], meta_info=meta)
    with pytest.raises(EngineError, match=says):
        client_module._generation(reply, rid="r", only_version=None, adapter=None)


async def test_without_spans_a_reply_names_one_version_only(tmp_path: Path) -> None:
    """As SGLang 0.5.17, which these tests cannot install beside the pinned one."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "config.json").write_text("{}")
    async with FakeEngine(token_seconds=0.0005, spans=False) as engine:
        client = EngineClient(engine.port, engine.api_key, LIMITS)
        await client.update_weights(str(tmp_path / "1"), version=1, flush_cache=True)
        sampling = Sampling(max_new_tokens=4, temperature=1.0, ignore_eos=True)
        generation = await client.generate([97, 98], sampling, rid="r" * 32, only_version=1)
        assert generation.versions == [1, 1, 1, 1]
        with pytest.raises(EngineError, match="not by version 2"):
            await client.generate([97, 98], sampling, rid="s" * 32, only_version=2)
        with pytest.raises(EngineTooOld):
            await client.generate([97, 98], sampling, rid="t" * 32)
        await client.close()
