"""An agent written with the `openai` package, which knows nothing of Oolong, trains through the session endpoint.

Real SGLang, real trainer, the letter-sum task after its warm start. The agent answers a question by one call; the
code around it opens sessions, compares the answer with the row's, and sets the reward. Nobody else scores anything.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from oolong.contracts.telemetry import Points
from tests.support.tiny_specs import tiny_run_spec
from tests.tools.local_attempt import LocalAttempt, letter_sum_file, tiny_model, warm_start

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1500)]

AGENTS, STEPS, GROUPS, GROUP_SIZE = 96, 30, 16, 8
BOXED_AT_END = re.compile(r"\\boxed\{(\d+)\}\s*\Z")


async def agent(client: AsyncOpenAI, model: str, messages: list[dict[str, str]]) -> str:
    """The agent itself: unmodified OpenAI code."""
    reply = await client.chat.completions.create(model=model, messages=messages)  # type: ignore[arg-type]
    return reply.choices[0].message.content or ""


async def play(door: httpx.AsyncClient, shared: httpx.AsyncClient) -> None:
    """Session after session until the run needs no more."""
    while True:
        opened = await door.post("/sessions")
        if opened.status_code == 429:
            await asyncio.sleep(0.2)
            continue
        if opened.status_code != 201:
            return  # 410: the run needs no more
        session = opened.json()
        client = AsyncOpenAI(
            base_url=session["base_url"], api_key=session["api_key"], max_retries=0, http_client=shared
        )
        answer = await agent(client, session["model"], session["messages"])
        found = BOXED_AT_END.search(answer)
        reward = float(found is not None and found[1] == session["answer"])
        await door.post(f"/sessions/{session['id']}/end", json={"reward": reward})


async def play_all(attempt: LocalAttempt) -> None:
    url = f"http://127.0.0.1:{attempt.attempt.session_ports[0]}"
    headers = {"Authorization": f"Bearer {attempt.attempt.token}"}
    limits = httpx.Limits(max_connections=2 * AGENTS)
    async with (
        httpx.AsyncClient(base_url=url, headers=headers, timeout=120, trust_env=False, limits=limits) as door,
        httpx.AsyncClient(timeout=120, trust_env=False, limits=limits) as shared,
    ):

        async def one() -> None:
            while not over(attempt):
                try:
                    await play(door, shared)
                except httpx.TransportError:
                    pass  # before the run has begun, and after it has ended
                await asyncio.sleep(0.5)

        await asyncio.gather(*(one() for _ in range(AGENTS)), return_exceptions=False)


def over(attempt: LocalAttempt) -> bool:
    return any(attempt.jobs[name].process.poll() is not None for name in ("trainer", "rollout-0"))


def series(attempt: LocalAttempt, name: str) -> list[float]:
    points = [line for job in attempt.jobs.values() for line in job.lines() if isinstance(line, Points)]
    found = {p.x: p.values[name] for p in points if p.axis == "step" and name in p.values}
    return [found[x] for x in sorted(found)]


def test_an_unmodified_agent_improves(tmp_path: Path, node_python: Path) -> None:
    dataset = letter_sum_file(tmp_path)
    model = warm_start(tmp_path, tiny_model(tmp_path, str(node_python)), dataset, str(node_python))
    document: dict[str, Any] = {
        "name": "agents", "model": {"base_model": "local"}, "dataset": {"version": "local"},
        "workflow": {"name": "agent_session", "session_timeout_seconds": 120},
        "rollout": {"group_size": GROUP_SIZE, "max_new_tokens": 112},
        "staleness": {"max": 4},
        "trainer": {"total_train_steps": STEPS, "groups_per_step": GROUPS, "minibatches": 4, "learning_rate": 2.0e-4},
        "weight_sync": {"probe_first_versions": STEPS},
    }  # fmt: skip
    attempt = LocalAttempt(
        directory=tmp_path / "attempt", spec=tiny_run_spec(document), model_directory=model,
        dataset_file=dataset, node_python=str(node_python),
    )  # fmt: skip
    began = time.monotonic()
    try:
        attempt.start_all()
        asyncio.run(play_all(attempt))
        results = attempt.wait(timeout=60)
    finally:
        attempt.stop()
    rewards, mismatch = series(attempt, "reward/mean"), series(attempt, "mismatch/logprob_abs_max")
    first, last = sum(rewards[:8]) / 8, sum(rewards[-8:]) / 8
    ledger = attempt.summaries().get("controller", {})
    print(json.dumps({"rewards": [round(r, 3) for r in rewards], "seconds": round(time.monotonic() - began)}))
    print(json.dumps(ledger)[:1500])
    assert {results["trainer"]["reason"], results["controller"]["reason"]} == {"completed"}  # type: ignore[index]
    assert len(rewards) == STEPS
    assert max(mismatch) < 1e-4
    assert last > first + 0.05, (first, last)
