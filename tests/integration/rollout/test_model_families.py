"""SGLang samples what the trainer trains: log-probabilities of both agree for every family. (Qwen3 is the tiny model
of all the other tests of this folder.)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from gpu_agents.rollout.engines.client import EngineClient, Sampling
from oolong.contracts.rollout import Group, Trajectory
from tests.integration.rollout.conformance import LIMITS, Subject, load, load_adapter, new_rid
from tests.integration.rollout.conftest import LORA, RealEngine, run_with_node_python

pytestmark = pytest.mark.engine

FAMILIES = ("qwen2", "llama")
PROMPTS = ([258, 97, 53, 32, 98, 55, 259], [258, *range(60, 200), 259])
TEMPERATURE = 0.7


def make_family(node_python: Path, family: str, weights: Path) -> Path:
    """A tiny model that is also version 1 of the published weights. Version 2 is an adapter, and merged weights."""
    directory = weights / "v00000001"
    run_with_node_python(
        node_python,
        "make_models.py", str(directory), "--family", family, "--weights", str(weights),
        "--lora", LORA.model_dump_json(), "--adapters", "2", "--merged", str(weights),
    )  # fmt: skip
    return directory


async def sample(engine: RealEngine, model: Path, adapters: Path) -> list[Group]:
    """By the whole weights, which are version 1, and by an adapter, which is version 2."""
    client = EngineClient(engine.port, engine.api_key, LIMITS)
    subject = Subject(client, engine.port, {1: model}, model, {2: adapters / "v00000002"}, a_moment=0)
    sampling = Sampling(max_new_tokens=60, temperature=TEMPERATURE, ignore_eos=True)
    adapter = await load_adapter(subject, 2)
    adapted = await asyncio.gather(
        *(client.generate(prompt, sampling, rid=new_rid(), adapter=adapter) for prompt in PROMPTS)
    )
    await load(subject, 1)
    whole = await asyncio.gather(*(client.generate(prompt, sampling, rid=new_rid()) for prompt in PROMPTS))
    await client.close()
    return [
        Group(
            group_id=f"0-{number}-0", row=number, prompt_token_ids=prompt, prompt="", answer="",
            trajectories=[
                Trajectory(
                    token_ids=one.token_ids, loss_mask=[1] * 60, behavior_logprobs=one.logprobs,
                    policy_versions=one.versions, finish_reason="length", reward=0.0,
                )
            ],
        )
        for number, (prompt, one) in enumerate(zip(PROMPTS * 2, [*whole, *adapted], strict=True))
    ]  # fmt: skip


async def test_the_engines_log_probabilities_are_the_trainers(
    new_engine: Callable[..., RealEngine], node_python: Path, tmp_path: Path
) -> None:
    folders = {family: tmp_path / family for family in FAMILIES}
    with ThreadPoolExecutor() as side_by_side:  # a boot is mostly imports
        models = dict(
            zip(
                FAMILIES,
                side_by_side.map(lambda f: make_family(node_python, f, folders[f]), FAMILIES),
                strict=True,
            )
        )
        engines = dict(zip(FAMILIES, side_by_side.map(new_engine, models.values()), strict=True))
    for family, engine in engines.items():
        groups = tmp_path / f"{family}.msgpack"
        groups.write_bytes(
            msgspec.msgpack.encode(await sample(engine, models[family], folders[family] / "adapters"))
        )
        told = json.loads(
            run_with_node_python(
                node_python, "recompute_by_trainer.py", str(groups), str(folders[family]), str(TEMPERATURE)
            )
        )
        assert told["tokens"] == 240 and told["max"] < 1e-4, (family, told)
