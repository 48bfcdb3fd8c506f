"""What a job of another attempt gets from the ports of one: a refusal from each, whatever it asks."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gpu_agents.channel import Door
from gpu_agents.playground.server import Engine, PlaygroundServer
from gpu_agents.rollout.sessions.manager import SessionManager, SessionNotFound
from gpu_agents.rollout.sessions.server import SessionServer, SessionServerConfig
from oolong.contracts import rollout as wire
from tests.support import uninvited

TOKEN = "the-attempts-token"


async def ask(port: int) -> Any:
    process = await asyncio.create_subprocess_exec(
        sys.executable, uninvited.__file__, str(port), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(said)


def channel() -> Door:
    """The controller's and the reward service's: what serves a verb here got in."""
    door = Door(TOKEN)

    async def got_in(_: wire.StateRequest) -> wire.Ack:
        return wire.Ack()

    for verb in uninvited.VERBS:
        door.verb(verb, wire.StateRequest, got_in)
    return door


def sessions() -> SessionServer:
    desk: Any = SessionManager.__new__(SessionManager)  # nobody gets behind the door, so nothing lies there
    desk.find = refuse_to_find
    facts = SessionServerConfig(
        run_id="run_1", token=TOKEN, temperature=1.0, max_new_tokens=1, timeout_seconds=1.0
    )
    return SessionServer(desk, facts)


def refuse_to_find(identity: str) -> Any:
    raise SessionNotFound(identity)


def playground() -> PlaygroundServer:
    template: Any = None
    return PlaygroundServer(
        Engine(1, "key"), template, run_id="run_1", token=TOKEN, idle_seconds=60.0, reward=None
    )


async def opened(door: Any) -> int:
    port = await (door.open("127.0.0.1", 0) if isinstance(door, Door) else door.open(0))
    return int(port)


@pytest.mark.parametrize("make", [channel, sessions, playground], ids=lambda make: make.__name__)
async def test_no_port_answers_without_the_attempts_token(make: Callable[[], Any]) -> None:
    door = make()
    port = await opened(door)
    try:
        assert await ask(port) == {}
    finally:
        await door.close()


async def test_a_port_that_answers_anybody_is_found() -> None:
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


def test_no_other_server_is_in_the_jobs(checkout: Path) -> None:
    """A new one belongs into the table above; the engine's own port is tested with a real engine."""
    words = ("TCPSite(", "run_app(", "start_server(", "create_server(", "uvicorn", ".listen(")
    files = [*(checkout / "gpu_agents").rglob("*.py"), *(checkout / "trainers").rglob("*.py")]
    found = {
        str(file.relative_to(checkout)) for file in files if any(word in file.read_text() for word in words)
    }
    assert found == {
        "gpu_agents/channel.py",
        "gpu_agents/playground/server.py",
        "gpu_agents/rollout/sessions/server.py",
        "gpu_agents/rollout/engines/guarded_ports/sitecustomize.py",
    }
