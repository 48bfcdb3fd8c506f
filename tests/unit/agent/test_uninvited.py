"""Jobs of another attempt get an error from every port of this attempt."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gpu_agents.playground.server import Engine, PlaygroundServer
from gpu_agents.rollout.sessions.manager import SessionManager, SessionNotFound
from gpu_agents.rollout.sessions.server import SessionServer, SessionServerConfig
from oolong.contracts import rollout as wire
from oolong.system.rpc import RpcServer
from tests.support import uninvited

TOKEN = "the-attempts-token"


async def ask(port: int) -> Any:
    process = await asyncio.create_subprocess_exec(
        sys.executable, uninvited.__file__, str(port), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(output)


def rpc() -> RpcServer:
    """The server of the controller and of the reward service; its methods accept everything."""
    server = RpcServer(TOKEN)

    async def accept(_: wire.StateRequest) -> wire.Ack:
        return wire.Ack()

    for name in uninvited.METHODS:
        server.method(name, wire.StateRequest, accept)
    return server


def sessions() -> SessionServer:
    manager: Any = SessionManager.__new__(SessionManager)  # unauthorized requests never reach it
    manager.find = refuse_to_find
    facts = SessionServerConfig(
        run_id="run_1", token=TOKEN, temperature=1.0, max_new_tokens=1, timeout_seconds=1.0
    )
    return SessionServer(manager, facts)


def refuse_to_find(identity: str) -> Any:
    raise SessionNotFound(identity)


def playground() -> PlaygroundServer:
    template: Any = None
    return PlaygroundServer(
        Engine(1, "key"), template, run_id="run_1", token=TOKEN, idle_seconds=60.0, reward=None
    )


async def started(server: Any) -> int:
    port = await (server.start("127.0.0.1", 0) if isinstance(server, RpcServer) else server.start(0))
    return int(port)


@pytest.mark.parametrize("make", [rpc, sessions, playground], ids=lambda make: make.__name__)
async def test_no_port_answers_without_the_attempts_token(make: Callable[[], Any]) -> None:
    server = make()
    port = await started(server)
    try:
        assert await ask(port) == {}
    finally:
        await server.close()


async def test_a_port_without_authorization_is_found() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_get("/health", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        found = await ask(runner.addresses[0][1])
    finally:
        await runner.cleanup()
    assert all(
        line.startswith("GET /health ") and "200 OK" in line for lines in found.values() for line in lines
    )
    assert found


def test_jobs_start_no_other_servers(checkout: Path) -> None:
    """Add a new server to the table above. A real engine tests the engine's port."""
    words = (
        "HttpListener(",
        "TCPSite(",
        "run_app(",
        "start_server(",
        "create_server(",
        "uvicorn",
        ".listen(",
    )
    packages = ("gpu_agents", "trainers", "platform/oolong/system")
    files = [file for package in packages for file in (checkout / package).rglob("*.py")]
    found = {
        str(file.relative_to(checkout)) for file in files if any(word in file.read_text() for word in words)
    }
    assert found == {
        "platform/oolong/system/http_listener.py",  # of the next three
        "platform/oolong/system/rpc.py",
        "gpu_agents/rollout/controller/weight_server.py",  # tests/unit/rollout/worker/test_weight_fetcher.py
        "gpu_agents/chat_server.py",
        "gpu_agents/rollout/engines/guarded_ports/sitecustomize.py",
        # Open to the peer network of a run that asks for several nodes (decision 0068): test_ranks.py.
        "trainers/distributed/launch.py",
    }
