"""Two web processes over one database and one Valkey: the node's socket is at one, the user's request at the other."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest_asyncio
from aiohttp import web
from channels.db import database_sync_to_async
from django.db import connection

from gpu_agents.agent.relay import RelayClient
from tests.support.control_plane import ControlPlane
from tests.support.waiting import eventually
from tests.unit.control_plane.telemetry.world import World, build_world
from tests.unit.control_plane.tunnel.conftest import SmallJob, desired, save_ports

MIB = 2**20


@dataclass
class Pair:
    world: World
    holder: ControlPlane  # the agent dials this one
    other: ControlPlane
    token: str
    job: SmallJob

    def client(self, plane: ControlPlane) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.AsyncClient(
            base_url=f"{plane.url}/api/v1", headers=headers, timeout=120, trust_env=False
        )

    @property
    def path(self) -> str:
        return f"/runs/{self.world.run.pk}/sessions/0-a"

    async def until_reached(self, client: httpx.AsyncClient) -> None:
        async with asyncio.timeout(120):
            while (await client.get(self.path)).status_code != 200:
                await asyncio.sleep(0.1)

    async def held_call(self, client: httpx.AsyncClient) -> asyncio.Task[httpx.Response]:
        """A request that is open at the job, which does not answer it."""
        while True:
            calling = asyncio.create_task(client.get(self.path, headers={"X-Request-Id": "-1"}))
            await eventually(lambda: self.job.open_now or calling.done(), "the request is at the job")  # noqa: B023
            if self.job.open_now:
                return calling
            assert (await calling).status_code == 503, "a bus that was late refuses; nothing else may"


async def answer(request: web.Request) -> web.StreamResponse:
    size = int(request.headers.get("X-Request-Id", "0") or 0)
    if size < 0:
        await asyncio.Event().wait()
    return web.Response(body=b"x" * size)


@pytest_asyncio.fixture
async def pair(transactional_db: None, valkey_url: str, tmp_path: Path) -> AsyncIterator[Pair]:
    world = await database_sync_to_async(build_world)()
    token = await database_sync_to_async(world.token)("sessions:write")
    credentials, _, _ = os.environ["DATABASE_URL"].rpartition("/")
    planes = []
    for name in ("holder", "other"):
        (tmp_path / name).mkdir()
        planes.append(
            ControlPlane(
                tmp_path / name,
                database_url=f"{credentials}/{connection.settings_dict['NAME']}",
                redis_url=valkey_url,
                settings={n: os.environ[n] for n in ("SECRET_KEY", "OOLONG_DATA_DIR", "ALLOWED_HOSTS")},
            )
        )
    async with SmallJob(answer).serve() as job:
        attempts = [desired(world.attempt.pk, job.port)]
        await save_ports(world, attempts[0].ports)
        for plane in planes:
            plane.start_part("web")
        for plane in planes:
            await asyncio.to_thread(plane.wait_for_web)
        agent = asyncio.create_task(RelayClient(planes[0].url, world.credential, lambda: attempts).run())
        yield Pair(world, *planes, token, job)
        agent.cancel()
        await asyncio.gather(agent, return_exceptions=True)
    for plane in planes:
        plane.close()


async def milliseconds(client: httpx.AsyncClient, path: str, *, size: int, times: int) -> list[float]:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        reply = await client.get(path, headers={"X-Request-Id": str(size)})
        taken.append(1000 * (time.perf_counter() - began))
        assert len(reply.content) == size
    return sorted(taken)


async def test_a_request_at_the_other_process_is_served_and_what_the_way_costs(pair: Pair) -> None:
    async with pair.client(pair.holder) as near, pair.client(pair.other) as far:
        await pair.until_reached(near)
        await pair.until_reached(far)
        for name, client in (("same process", near), ("other process", far)):
            small = await milliseconds(client, pair.path, size=0, times=40)
            large = await milliseconds(client, pair.path, size=8 * MIB, times=3)
            print(
                f"{name}: median {small[20]:.1f} ms, 95th percentile {small[37]:.1f} ms; "
                f"{8_000 / large[1]:.0f} MiB/s"
            )


async def test_a_killed_holder_ends_the_call_cleanly_and_the_next_one_works_again(pair: Pair) -> None:
    async with pair.client(pair.other) as far:
        await pair.until_reached(far)
        calling = await pair.held_call(far)
        pair.holder.kill_part("web")
        reply = await calling
        assert (reply.status_code, reply.json()["code"]) == (502, "tunnel_lost")
        reply = await far.get(pair.path)
        assert (reply.status_code, reply.json()["code"]) == (503, "node_unavailable")
        await eventually(
            lambda: not pair.job.open_now, "the agent lets go of what the lost socket had asked for"
        )
        pair.holder.start_part("web")
        await pair.until_reached(far)


async def test_a_killed_caller_leaves_no_request_at_the_job(pair: Pair) -> None:
    async with pair.client(pair.other) as far:
        await pair.until_reached(far)
        calling = await pair.held_call(far)
        pair.other.kill_part("web")
        await eventually(lambda: not pair.job.open_now, "nothing is open at the job")
        await asyncio.gather(calling, return_exceptions=True)
