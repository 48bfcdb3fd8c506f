"""A whole relay in one process: the real web application on a real port, real agents' ends, and small jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import pytest_asyncio
import uvicorn
from aiohttp import web
from channels.db import database_sync_to_async
from channels.routing import ProtocolTypeRouter, URLRouter

from oolong.contracts.agent import Artifact, DesiredAttempt
from tests.support.waiting import eventually

JOB_TOKEN = "token-of-the-attempt"


@pytest.fixture(autouse=True)
def _a_process_may_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a web process gives up or forgets by time, it does not while a test takes long."""
    from control_plane.tunnel import bus, tunnel_router

    monkeypatch.setattr(bus, "CALL_SECONDS", 60.0)
    monkeypatch.setattr(tunnel_router, "REGISTRATION_SECONDS", 600)


@dataclass
class SmallJob:
    """A job's door that does what the test says, and remembers what came."""

    answer: Callable[[web.Request], Awaitable[web.StreamResponse]]
    requests: list[web.Request] = field(default_factory=list)
    open_now: int = 0
    port: int = 0

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[SmallJob]:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.requests.append(request)
            self.open_now += 1
            try:
                return await self.answer(request)
            finally:
                self.open_now -= 1

        application = web.Application(client_max_size=64 * 2**20)
        application.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()


def desired(
    attempt_id: str, *ports: int, token: str = JOB_TOKEN, endpoint: str = "session"
) -> DesiredAttempt:
    return DesiredAttempt(
        run_id="run", attempt_id=attempt_id, attempt_number=1, epoch=1, spec={},
        dataset=Artifact(sha256="", bytes=0, kind="dataset"), evaluation=None, model=None, model_path="",
        resume=None, ports={f"{endpoint}-{i}": port for i, port in enumerate(ports)}, token=token, jobs=[],
    )  # fmt: skip


class Site:
    """A web process with nodes. `world` has a run whose attempt is RUNNING on a node."""

    def __init__(self, stack: AsyncExitStack, world: Any, port: int) -> None:
        self._stack = stack
        self.world = world
        self.url = f"http://127.0.0.1:{port}"
        self.tokens: dict[tuple[str, ...], str] = {}
        self._ends: dict[str, Callable[[], Awaitable[None]]] = {}  # by node

    async def job(self, answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> SmallJob:
        return await self._stack.enter_async_context(SmallJob(answer).serve())

    async def node(
        self,
        *jobs: SmallJob,
        world: Any = None,
        attempt_id: str = "",
        token: str = JOB_TOKEN,
        endpoint: str = "session",
    ) -> Callable[[], Awaitable[None]]:
        """An agent's end of the relay with these jobs, in place of the node's end before; returns what ends it."""
        from gpu_agents.agent.relay import RelayClient

        world = world or self.world
        ports = [job.port for job in jobs]
        attempts = [desired(attempt_id or world.attempt.pk, *ports, token=token, endpoint=endpoint)]
        await save_ports(world, attempts[0].ports)
        if world.node.pk in self._ends:  # two at once would take the node from each other
            await self._ends[world.node.pk]()
            await self.until_connected(world.node.pk, gone=True)
        client = RelayClient(self.url, world.credential, lambda: attempts)
        task = asyncio.create_task(client.run())

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._ends[world.node.pk] = end
        self._stack.push_async_callback(end)
        await self.until_connected(world.node.pk)
        return end

    async def until_connected(self, node_id: str, *, gone: bool = False) -> None:
        from control_plane.tunnel.tunnel_router import tunnel_router

        await eventually(
            lambda: (node_id in tunnel_router().sockets) is not gone,
            f"{node_id} is {'gone' if gone else 'connected'}",
        )

    async def client(self, *scopes: str, world: Any = None) -> httpx.AsyncClient:
        token = await database_sync_to_async((world or self.world).token)(*scopes)
        return await self._stack.enter_async_context(self.bare_client(Authorization=f"Bearer {token}"))

    def bare_client(self, **headers: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"{self.url}/api/v1", headers=headers, timeout=60, trust_env=False)

    def path(self, rest: str = "", *, run_id: str = "") -> str:
        return f"/runs/{run_id or self.world.run.pk}/sessions{rest}"


@database_sync_to_async
def save_ports(world: Any, ports: dict[str, int]) -> None:
    world.attempt.ports = ports
    world.attempt.status = "RUNNING"
    world.attempt.save()


@pytest_asyncio.fixture
async def site(transactional_db: None, valkey_url: str) -> AsyncIterator[Site]:
    from django.core.asgi import get_asgi_application

    from control_plane.core.stream.event_hub import hub
    from control_plane.tunnel.routing import websocket_urlpatterns
    from control_plane.tunnel.tunnel_router import tunnel_router
    from tests.unit.control_plane.telemetry.world import build_world

    # As control_plane.asgi puts it together, without the pulse that this module starts.
    sockets = URLRouter(websocket_urlpatterns)
    application = ProtocolTypeRouter({"http": get_asgi_application(), "websocket": sockets})

    world = await database_sync_to_async(build_world)()
    server = uvicorn.Server(
        uvicorn.Config(application, port=0, lifespan="off", log_level="warning", timeout_graceful_shutdown=1)
    )
    serving = asyncio.create_task(server.serve())
    await eventually(lambda: server.started or serving.done(), "the web server has started")
    port = server.servers[0].sockets[0].getsockname()[1]
    async with AsyncExitStack() as stack:
        yield Site(stack, world, port)
    await tunnel_router().close()
    await hub().close()
    server.should_exit = True
    await serving
