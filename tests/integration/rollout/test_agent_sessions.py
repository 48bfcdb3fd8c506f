"""An agent written with the `openai` package on the real engine: what was captured is what the engine sampled.

The agent streams or not, uses stop strings, asks again, goes back to an earlier point and rewrites what was said,
while versions are published under it. The trainer's own forward pass over the trajectories, at the version of every
token, gives the log-probabilities that were captured; and a train step on them is a step like any other.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from openai import AsyncOpenAI

from oolong.contracts.rollout import Group
from tests.integration.rollout.conftest import RealEngine, TinyModel, run_with_node_python
from tests.unit.rollout.harness import TOKEN, Harness, run_spec
from tests.unit.rollout.model_files import write_rows
from tests.unit.rollout.simulation import assert_ledger_is_true

pytestmark = pytest.mark.engine

STEPS, MOST_STEPS, TEMPERATURE = 3, 20, 0.9


async def agent(client: AsyncOpenAI, model: str, messages: list[Any], *, style: int) -> None:
    """Plain OpenAI code, in four manners."""
    again = {"role": "user", "content": "Again, please: ☕"}
    if style % 2:
        stream = await client.chat.completions.create(model=model, messages=messages, stream=True)
        parts = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        said: Any = {"role": "assistant", "content": "".join(parts)}
    else:
        reply = await client.chat.completions.create(
            model=model, messages=messages, stop=["a"], temperature=TEMPERATURE
        )
        said = reply.choices[0].message
    await client.chat.completions.create(model=model, messages=[*messages, said, again])
    if style == 2:  # goes back to the first answer
        other = {"role": "user", "content": "Another way?"}
        await client.chat.completions.create(model=model, messages=[*messages, said, other])
    if style == 3:  # says something that the policy never said
        rewritten = {"role": "assistant", "content": "I said something else."}
        await client.chat.completions.create(
            model=model, messages=[*messages, rewritten, again], max_tokens=20
        )


async def play(door: httpx.AsyncClient, done: asyncio.Event, *, style: int, rewards: Iterator[int]) -> None:
    """`rewards` are all different, so that every group has something to learn."""
    while not done.is_set():
        opened = await door.post("/sessions")
        if opened.status_code != 201:
            await asyncio.sleep(0.05)
            continue
        session = opened.json()
        async with AsyncOpenAI(
            base_url=session["base_url"], api_key=session["api_key"], max_retries=0
        ) as client:
            await agent(client, session["model"], session["messages"], style=style)
        ended = await door.post(f"/sessions/{session['id']}/end", json={"reward": float(next(rewards))})
        assert ended.status_code == 200, ended.text


def spans_versions(groups: list[Group]) -> bool:
    return any(len(set(t.policy_versions)) > 1 for group in groups for t in group.trajectories)


@pytest.mark.parametrize("export", ["concatenated", "individual"])
async def test_captured_tokens_have_the_engines_log_probabilities_and_train(
    tiny: TinyModel, real_engine: RealEngine, tmp_path: Path, export: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    spec = run_spec(
        staleness={"max": 4, "on_straggler": "keep"},
        workflow={"name": "agent_session", "session_export": export},
        rollout={"group_size": 2, "max_new_tokens": 80, "engine_max_running_requests": 32, "temperature": TEMPERATURE},
    )  # fmt: skip
    rows = write_rows(tmp_path / "rows.jsonl", 60)
    groups: list[Group] = []
    done = asyncio.Event()
    async with Harness(tmp_path / "attempt", spec, tiny.base, rows) as run:
        running = run.start_worker(real_engine.port, real_engine.api_key)
        assert running.session_server is not None
        port = await running.session_server.start(0)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60, trust_env=False
        ) as door:
            rewards = itertools.count()
            agents = [asyncio.create_task(play(door, done, style=n % 4, rewards=rewards)) for n in range(12)]
            await run.trainer.announce(tiny.publish(0, tmp_path / "weights"), "none")
            version = 0
            while version < STEPS or (version < MOST_STEPS and not spans_versions(groups)):
                groups += await run.trainer.take(version, seconds=90)
                version += 1
                await run.trainer.announce(tiny.publish(version, tmp_path / "weights"))
            done.set()
            await asyncio.gather(*agents)
        assert_ledger_is_true(run.controller)
        await running.session_server.close()

    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    assert len(trajectories) > 2 * len(groups), "branches, or calls, are trajectories of their own"
    assert spans_versions(groups), "none spans versions"
    file = tmp_path / "groups.msgpack"
    file.write_bytes(msgspec.msgpack.encode(groups))
    result = json.loads(
        run_with_node_python(
            tiny.node_python, "recompute_by_trainer.py", str(file), str(tiny.weights), str(TEMPERATURE)
        )
    )
    print(export, result, len(trajectories), "trajectories of", len(groups), "groups")
    assert result["tokens"] == sum(sum(t.loss_mask) for t in trajectories)
    assert result["max"] < 1e-4, result

    file.write_bytes(msgspec.msgpack.encode(groups[-4:]))
    step = json.loads(
        run_with_node_python(
            tiny.node_python,
            "train_step_on.py",
            str(file),
            str(tiny.version(version)),
            str(version),
            str(TEMPERATURE),
        )
    )
    print(step)
    assert step["finite"] and step["changed"] > 0
    assert step["loss_tokens"] == sum(sum(t.loss_mask) for g in groups[-4:] for t in g.trajectories)
