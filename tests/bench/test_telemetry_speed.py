"""How fast telemetry goes through one web process. Prints figures; fails only when something is lost.

`python3 manage.py bench --only ingest_points_per_second,point_to_frame_p95_ms`, or pytest -s on this file.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from channels.db import database_sync_to_async
from django.db import transaction
from websockets.asyncio.client import connect

from control_plane.common import live
from control_plane.telemetry.models import MetricPoint
from oolong.contracts.telemetry import Points
from tests.integration.stream.stack import Stack, prepare
from tests.unit.telemetry.world import World, build_world, encode

RUNS = 4  # shipped to at once, one file each
LINES_PER_BODY = 100
VALUES_PER_LINE = 10
BODIES_PER_RUN = 20

SOCKETS = 200
FRAMES = 100
FRAMES_PER_SECOND = 10


@pytest.fixture
def stack(transactional_db: None, tmp_path: Path) -> Iterator[Stack]:
    stack = prepare(tmp_path)
    stack.start("web")
    stack.wait_for_web()
    yield stack
    stack.close()


def report(name: str, **figures: float) -> None:
    """Print the figures, and add them to the file that a benchmark asks for."""
    print(f"\n{name}: " + ", ".join(f"{key} {value:,.1f}" for key, value in figures.items()))
    if "OOLONG_BENCH_REPORT" in os.environ:
        with Path(os.environ["OOLONG_BENCH_REPORT"]).open("a") as file:
            file.write(json.dumps({"name": name, "figures": figures}) + "\n")


async def test_points_per_second_of_one_web_process(stack: Stack) -> None:
    worlds = [await database_sync_to_async(build_world)(str(n)) for n in range(RUNS)]
    names = [f"metric/{n}" for n in range(VALUES_PER_LINE)]
    seconds: list[float] = []

    async def ship(client: httpx.AsyncClient, world: World) -> None:
        offset = 0
        for body in range(BODIES_PER_RUN):
            first = body * LINES_PER_BODY
            text = encode(
                *(
                    Points(at=1.7e9, axis="step", x=x, values=dict.fromkeys(names, x / 3))
                    for x in range(first, first + LINES_PER_BODY)
                )
            )
            began = time.perf_counter()
            answer = await client.post(
                f"/api/v1/agent/jobs/{world.trainer.pk}/outbox/main-0.jsonl?offset={offset}",
                content=text,
                headers={"Authorization": f"Bearer {world.credential}"},
            )
            seconds.append(time.perf_counter() - began)
            assert answer.status_code == 200, answer.text
            offset = answer.json()["offset"]

    async with httpx.AsyncClient(base_url=stack.url, timeout=60, trust_env=False) as client:
        began = time.perf_counter()
        await asyncio.gather(*(ship(client, world) for world in worlds))
        wall = time.perf_counter() - began
    points = RUNS * BODIES_PER_RUN * LINES_PER_BODY * VALUES_PER_LINE
    assert await database_sync_to_async(MetricPoint.objects.count)() == points
    report(
        "ingest",
        runs_at_once=RUNS,
        lines_per_body=LINES_PER_BODY,
        values_per_line=VALUES_PER_LINE,
        points_per_second=points / wall,
        lines_and_frames_per_second=points / VALUES_PER_LINE / wall,
        median_ms=statistics.median(seconds) * 1000,
        p99_ms=statistics.quantiles(seconds, n=100)[98] * 1000,
    )


async def test_delay_from_publish_to_every_socket(stack: Stack) -> None:
    delays: list[float] = []

    async def listen() -> None:
        async with connect(f"ws://127.0.0.1:{stack.port}/ws/v1", proxy=None, compression=None) as socket:
            await socket.send(json.dumps({"op": "auth", "token": stack.token}))
            await socket.send(json.dumps({"op": "subscribe", "topic": "pool"}))
            heard = 0
            while heard < FRAMES:
                frame = json.loads(await socket.recv())
                if frame["type"] == "subscribed":
                    ready.release()
                elif frame["type"] == "points":
                    delays.append(time.time() - frame["data"]["sent"])
                    heard += 1
                else:
                    assert frame["type"] != "gap"

    @database_sync_to_async
    def publish(n: int) -> None:
        with transaction.atomic():
            live.publish("pool", "points", {"n": n, "sent": time.time(), "filling": "x" * 200})

    ready = asyncio.Semaphore(0)
    listeners = [asyncio.create_task(listen()) for _ in range(SOCKETS)]
    for _ in range(SOCKETS):
        await ready.acquire()
    for n in range(FRAMES):
        await publish(n)
        await asyncio.sleep(1 / FRAMES_PER_SECOND)
    await asyncio.gather(*listeners)
    assert len(delays) == SOCKETS * FRAMES
    report(
        "fan-out",
        sockets=SOCKETS,
        frames_per_second=FRAMES_PER_SECOND,
        median_ms=statistics.median(delays) * 1000,
        p95_ms=statistics.quantiles(delays, n=100)[94] * 1000,
        p99_ms=statistics.quantiles(delays, n=100)[98] * 1000,
    )
