"""The live stream through a real web process and real sockets."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest_asyncio
from channels.db import database_sync_to_async
from django.db import transaction
from websockets.asyncio.client import ClientConnection, connect

from control_plane.accounts.models import Project
from control_plane.core.stream import event_stream
from tests.integration.stream.stack import Stack, prepare

TOPIC = "pool"  # any topic will do; this one needs no run


@pytest_asyncio.fixture
async def stack(transactional_db: None, tmp_path: Path) -> AsyncIterator[Stack]:
    stack = await database_sync_to_async(prepare)(tmp_path)
    stack.plane.web_options = (
        "--ws-ping-interval",
        "3600",
    )  # one who does not read does not answer it either
    stack.plane.web_application = "tests.integration.stream.patient_web:application"
    stack.start("web")
    await asyncio.to_thread(stack.wait_for_web)
    yield stack
    stack.close()


@database_sync_to_async
def publish(*frames: tuple[str, dict[str, Any]]) -> int:
    with transaction.atomic():
        return event_stream.publish_many(TOPIC, frames)


async def subscribed(stack: Stack, after_seq: int | None = None, **options: Any) -> ClientConnection:
    # No pings: one that does not read its frames does not read these either, for as long as its test takes.
    socket = await connect(
        f"ws://127.0.0.1:{stack.port}/ws/v1", proxy=None, open_timeout=60, ping_interval=None, **options
    )
    await socket.send(json.dumps({"op": "auth", "token": stack.token}))
    await socket.send(json.dumps({"op": "subscribe", "topic": TOPIC, "after_seq": after_seq}))
    while json.loads(await socket.recv())["type"] != "subscribed":
        pass
    return socket


async def next_frame(socket: ClientConnection) -> dict[str, Any]:
    while True:
        frame: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), timeout=60))
        if frame.get("seq") is not None:
            return frame


async def test_a_frame_is_at_every_socket_and_how_soon(stack: Stack) -> None:
    sockets = [await subscribed(stack) for _ in range(50)]
    delays = []
    for n in range(20):
        await publish(("points", {"n": n, "sent": time.time()}))
        frames = await asyncio.gather(*(next_frame(socket) for socket in sockets))
        assert {frame["data"]["n"] for frame in frames} == {n}
        delays.append(time.time() - frames[0]["data"]["sent"])
    print(f"median {1000 * sorted(delays)[len(delays) // 2]:.0f} ms")
    for socket in sockets:
        await socket.close()


async def test_a_socket_that_does_not_read_gets_a_gap_and_the_others_are_not_delayed(stack: Stack) -> None:
    slow = await subscribed(stack, max_queue=1, compression=None)
    good = await subscribed(stack)
    filling = "x" * 20_000
    count, block = 3000, 50
    for first in range(0, count, block):
        await publish(*(("points", {"n": n, "filling": filling}) for n in range(first, first + block)))
        for n in range(first, first + block):
            frame = await next_frame(good)
            assert (frame["type"], frame["data"]["n"]) == ("points", n)

    covered: list[int] = []
    gaps = 0
    while not covered or covered[-1] < count:
        frame = await next_frame(slow)
        if frame["type"] == "gap":
            gaps += 1
            covered += range(frame["data"]["from"], frame["data"]["to"] + 1)
        else:
            covered.append(frame["seq"])
    assert gaps > 0
    assert covered == list(range(1, count + 1))
    await slow.close()
    await good.close()


async def test_server_sent_events_come_as_they_happen(stack: Stack) -> None:
    headers = {"Authorization": f"Bearer {stack.token}"}
    async with httpx.AsyncClient(base_url=stack.url, headers=headers, timeout=60, trust_env=False) as client:
        await publish(("points", {"n": 1}))
        async with client.stream("GET", f"/api/v1/stream?topic={TOPIC}&after_seq=0") as answer:
            assert answer.headers["content-type"] == "text/event-stream"
            lines = said(answer)
            assert [await anext(lines) for _ in range(3)] == ["event: subscribed", "id: 1", "event: points"]
            await publish(("points", {"n": 2}))
            assert await asyncio.wait_for(anext(lines), timeout=60) == "id: 2"


async def said(answer: httpx.Response) -> AsyncIterator[str]:
    """The fields of the events but their data; without the comments that keep the connection."""
    async for line in answer.aiter_lines():
        if line.startswith(("event:", "id:")):
            yield line


async def test_a_foreign_page_cannot_use_the_session_of_a_browser(stack: Stack) -> None:
    host = f"127.0.0.1:{stack.port}"
    link = await database_sync_to_async(_login_link)()
    async with httpx.AsyncClient(base_url=stack.url, timeout=60, trust_env=False) as browser:
        await browser.get(link)
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    for origin, code in ((f"http://{host}", None), ("http://evil.example", 4403), (None, 4403)):
        socket = await connect(
            f"ws://{host}/ws/v1",
            proxy=None,
            origin=origin,
            additional_headers={"Cookie": cookie},
            open_timeout=60,
        )
        if code is None:
            assert json.loads(await socket.recv())["type"] == "authenticated"
        else:
            await asyncio.wait_for(socket.wait_closed(), timeout=60)
            assert socket.close_code == code
        await socket.close()


def _login_link() -> str:
    from control_plane.accounts.identity.services import create_login_link
    from control_plane.core.infra import clock

    return create_login_link(Project.objects.get().memberships.get().user, now=clock.now())
