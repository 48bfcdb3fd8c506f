"""The playground server: what it forwards to the engine, what it rejects, and when it is idle."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gpu_agents.playground.chat import engine_request
from gpu_agents.playground.server import Engine, PlaygroundServer
from gpu_agents.rewards.registry import build_reward
from gpu_agents.rewards.service import InThisProcess, RewardService
from gpu_agents.rollout.chat_template import ChatTemplate
from gpu_agents.rollout.sessions.openai_chat import InvalidChatRequest
from oolong.system.rpc import RpcClient
from tests.unit.rollout.model_files import write_model

TOKEN, KEY = "attempt-token", "engine-key"
HELLO = {"messages": [{"role": "user", "content": "hello"}]}


@dataclass
class World:
    """A playground server in front of a fake engine that streams three chunks, with a fake clock."""

    url: str = ""
    now: float = 0.0
    seen: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    server: PlaygroundServer | None = None
    http: aiohttp.ClientSession | None = None

    async def call(
        self, method: str, path: str, body: Any = None, token: str = TOKEN
    ) -> aiohttp.ClientResponse:
        assert self.http is not None
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}"}
        reply = await self.http.request(method, f"{self.url}{path}", data=data, headers=headers)
        await reply.read()
        return reply

    async def engine(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.seen.append(body)
        self.keys.append(request.headers["Authorization"])
        if not body.get("stream"):
            return web.json_response({"choices": [{"message": {"content": "hi"}}]})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in ("a", "b", "c"):
            await response.write(f'data: {{"choices": [{{"delta": {{"content": "{piece}"}}}}]}}\n\n'.encode())
        await response.write(b"data: [DONE]\n\n")
        return response


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", world.engine)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    service = RewardService(InThisProcess(build_reward("exact_match", {"extract": "whole"})), token=TOKEN)
    reward = RpcClient(
        "the reward service",
        f"http://127.0.0.1:{await service.rpc.start('127.0.0.1', 0)}",
        TOKEN,
        connect_seconds=5,
    )
    world.server = PlaygroundServer(
        Engine(runner.addresses[0][1], KEY), ChatTemplate(write_model(tmp_path / "model")), run_id="run_1",
        token=TOKEN, idle_seconds=60, reward=reward, clock=lambda: world.now,
    )  # fmt: skip
    world.url = f"http://127.0.0.1:{await world.server.start(0)}/playground"
    world.http = aiohttp.ClientSession()
    yield world
    await world.http.close()
    await world.server.close()
    await reward.close()
    await service.rpc.close()
    await runner.cleanup()


async def test_a_chat_is_streamed_from_the_engine_with_the_engines_key(world: World) -> None:
    assert world.server is not None
    world.server.set_engine_ready()
    reply = await world.call("POST", "/chat/completions", {**HELLO, "stream": True, "model": "any"})
    text = (await reply.read()).decode()
    assert (reply.status, reply.content_type) == (200, "text/event-stream")
    assert [json.loads(line[6:])["choices"][0]["delta"]["content"] for line in text.split("\n\n")[:3]] == [
        "a",
        "b",
        "c",
    ]
    assert world.keys == [f"Bearer {KEY}"], "the user's token never reaches the engine"
    assert world.seen[0]["max_tokens"] == 512
    whole = await world.call("POST", "/chat/completions", HELLO)
    assert (await whole.json())["choices"][0]["message"]["content"] == "hi"


async def test_without_the_attempts_token_it_says_nothing(world: World) -> None:
    for method, path in (("GET", ""), ("POST", "/chat/completions"), ("POST", "/score")):
        assert (await world.call(method, path, HELLO, token="another")).status == 401
    assert world.seen == []


async def test_while_the_engine_boots_it_says_when_to_come_again(world: World) -> None:
    reply = await world.call("POST", "/chat/completions", HELLO)
    assert (reply.status, reply.headers["Retry-After"]) == (503, "3")
    assert (await (await world.call("GET", "")).json())["ready"] is False


async def test_it_is_idle_from_the_last_use_on_and_a_look_is_no_use(world: World) -> None:
    server = world.server
    assert server is not None
    world.now = 1000.0
    assert server.idle_left_seconds == 60, "the time of the boot does not count"
    server.set_engine_ready()
    world.now += 50
    assert (await (await world.call("GET", "")).json())["released_in_seconds"] == 10
    await world.call("POST", "/keepalive", {})
    assert server.idle_left_seconds == 60
    world.now += 61
    assert server.idle_left_seconds < 0


async def test_a_reply_is_scored_by_the_playgrounds_reward(world: World) -> None:
    body = {**HELLO, "completion": "42", "answer": "42"}
    assert (await (await world.call("POST", "/score", body)).json())["score"] == 1.0
    assert (await (await world.call("POST", "/score", {**body, "answer": "7"})).json())["score"] == 0.0
    assert (await world.call("POST", "/score", {"completion": "x"})).status == 400


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", ""),
        (b"[]", ""),
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0"),
        ({**HELLO, "lora_path": "/x"}, "lora_path"),
        ({**HELLO, "n": 4}, "n"),
    ],
)
def test_what_the_playground_does_not_pass_on_is_named(body: Any, param: str) -> None:
    with pytest.raises(InvalidChatRequest) as refused:
        engine_request(body if isinstance(body, bytes) else json.dumps(body).encode(), model="run_1")
    assert refused.value.param == param
