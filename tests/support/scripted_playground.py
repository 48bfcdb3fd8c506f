"""A scripted node whose playgrounds answer: the real playground server, reward and tunnel in front of a fake engine."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from gpu_agents.agent.relay import RelayClient
from gpu_agents.playground.server import Engine, PlaygroundServer
from gpu_agents.rewards.registry import build_reward
from gpu_agents.rewards.service import InThisProcess, RewardService
from gpu_agents.rollout.chat_template import ChatTemplate
from oolong.contracts.agent import DesiredAttempt
from oolong.contracts.lifecycle import EndReason, JobState
from oolong.contracts.telemetry import Progress
from oolong.system.rpc import RpcClient
from tests.support.scripted_node import ScriptedNode, _Job
from tests.unit.rollout.model_files import write_model

ENGINE_KEY = "engine-key"


async def answer(request: web.Request) -> web.StreamResponse:
    """Streams the last message back, word by word, as SGLang streams a completion."""
    body = await request.json()
    words = f"You wrote: {body['messages'][-1]['content']}".split(" ")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for index, word in enumerate(words):
        delta = {"choices": [{"delta": {"content": word if index == 0 else f" {word}"}}]}
        await response.write(f"data: {json.dumps(delta)}\n\n".encode())
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"completion_tokens": len(words)}}
    await response.write(f"data: {json.dumps(end)}\n\ndata: [DONE]\n\n".encode())
    return response


@dataclass
class PlaygroundNode(ScriptedNode):
    """`folder` gets the files of a tokenizer. Runs of other kinds are played as on every scripted node."""

    folder: Path = field(kw_only=True)
    _chats: dict[str, DesiredAttempt] = field(default_factory=dict)  # with the ports that serve them here
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _relay: asyncio.Task[None] | None = None
    _thread: threading.Thread | None = None

    def start(self) -> None:
        super().start()
        self._thread = threading.Thread(target=self._serve, name="tunnel")
        self._thread.start()

    def close(self) -> None:
        super().close()
        assert self._thread is not None
        self._loop.call_soon_threadsafe(lambda: self._relay and self._relay.cancel())
        self._thread.join(timeout=30)

    def _serve(self) -> None:
        async def run() -> None:
            credential = str(self._client.headers["Authorization"]).removeprefix("Bearer ")
            client = RelayClient(self.server, credential, lambda: list(self._chats.values()))
            self._relay = asyncio.create_task(client.run())
            await asyncio.gather(self._relay, return_exceptions=True)

        self._loop.run_until_complete(run())
        self._loop.close()

    def _play(self, attempt: dict[str, Any], jobs: dict[str, _Job]) -> None:
        if attempt["spec"]["kind"] != "playground":
            super()._play(attempt, jobs)
            return
        asyncio.run_coroutine_threadsafe(self._chat(attempt, jobs["rollout-0"]), self._loop).result()
        with self._lock:
            for job in jobs.values():
                job.reason, job.state = EndReason.STOPPED_BY_USER, JobState.EXITED

    async def _chat(self, attempt: dict[str, Any], job: _Job) -> None:
        """Serve one playground until it is stopped."""
        desired = msgspec.convert(attempt, DesiredAttempt)
        async with playground(self.folder / desired.attempt_id, desired) as port:
            self._chats[desired.attempt_id] = msgspec.structs.replace(desired, ports={"playground-0": port})
            await asyncio.to_thread(
                self._write, job, Progress(phase="chat", done=1, total=1, message="synthetic")
            )
            while desired.attempt_id in self._wanted and desired.attempt_id not in self._stopping:
                if self._stop.is_set():
                    break
                await asyncio.sleep(0.1)
            del self._chats[desired.attempt_id]


@asynccontextmanager
async def playground(folder: Path, desired: DesiredAttempt) -> AsyncIterator[int]:
    """The port of a playground server that is ready, for this attempt."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    service = RewardService(
        InThisProcess(build_reward("exact_match", {"extract": "whole"})), token=desired.token
    )
    address = f"http://127.0.0.1:{await service.rpc.start('127.0.0.1', 0)}"
    reward = RpcClient("the reward service", address, desired.token, connect_seconds=5)
    section: Any = desired.spec["playground"]
    engine = Engine(runner.addresses[0][1], ENGINE_KEY)
    server = PlaygroundServer(
        engine, ChatTemplate(write_model(folder)), run_id=desired.run_id, token=desired.token,
        idle_seconds=section["idle_seconds"], reward=reward if section.get("scores") else None,
    )  # fmt: skip
    port = await server.start(0)
    server.set_engine_ready()
    try:
        yield port
    finally:
        await server.close()
        await reward.close()
        await service.rpc.close()
        await runner.cleanup()
