"""How fast telemetry goes through one web process. Prints figures; fails only when something is lost or doubled.

`python3 manage.py bench --only KEY`, or pytest -s on this file.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from channels.db import database_sync_to_async
from django.db import connection, transaction

from control_plane.accounts.models import Project
from control_plane.checkpoints.models import Checkpoint, CheckpointState
from control_plane.core.infra import clock
from control_plane.core.models import StreamFrame
from control_plane.core.stream import event_stream
from control_plane.runs.models import Attempt, Run
from control_plane.runs.search import SORTS
from control_plane.telemetry.compaction import rollups
from control_plane.telemetry.models import MetricPoint, MetricSeries, OutboxFile
from gpu_agents.agent.api import AgentApi
from gpu_agents.agent.records import JobRecord
from gpu_agents.agent.settings import DataDirectory
from gpu_agents.agent.shipping import TelemetryShipper
from oolong.contracts.lifecycle import JobKind, RunStatus
from oolong.contracts.telemetry import Outbox, Points
from tests.bench.socket_crowd import Plan
from tests.bench.telemetry import REPORT_VARIABLE
from tests.integration.stream.stack import Stack, prepare
from tests.support.telemetry_batch import single_chunk
from tests.unit.control_plane.telemetry.world import World, build_world, encode

RUNS = 4  # shipped to at once, one file each
LINES_PER_BODY = 100
VALUES_PER_LINE = 10
BODIES_PER_RUN = 60
RESENT_EVERY = 10  # each tenth body is sent a second time, with the body before it in front

ACTIVE_RUNS = 100
NODES = 10
SECONDS_OF_POINTS = 20
VALUES_OF_STEP = 20

SOCKETS = 1000
SLOW_SOCKETS = 20
FRAMES = 200
FRAMES_PER_SECOND = 10

# The speed is measured, not what one user and one address may have open: 0 is no limit.
WITHOUT_LIMITS = {"OOLONG_STREAMS_USER": "0", "OOLONG_STREAMS_ADDRESS": "0", "OOLONG_RATE_ADDRESS": "0"}

POINTS_OF_CHART = 1_000_000
LISTED_RUNS = 10_000
POINTS_OF_LISTED_RUN = 1000  # rewards of a run whose sparkline is read


@pytest.fixture
def stack(transactional_db: None, tmp_path: Path) -> Iterator[Stack]:
    stack = prepare(tmp_path)
    stack.plane.settings |= WITHOUT_LIMITS
    stack.start("web")
    stack.wait_for_web()
    yield stack
    stack.close()


def report(name: str, **figures: Any) -> None:
    """Print the figures, and add them to the file that a benchmark asks for."""
    print(f"\n{name}: {json.dumps(figures)}")
    if REPORT_VARIABLE in os.environ:
        with Path(os.environ[REPORT_VARIABLE]).open("a") as file:
            file.write(json.dumps({"name": name, "figures": figures}) + "\n")


def processor_seconds(stack: Stack) -> float:
    """That the web process has used so far."""
    fields = Path(f"/proc/{stack.plane.processes['web'].pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spread(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {"median_ms": cuts[49] * 1000, "p95_ms": cuts[94] * 1000, "p99_ms": cuts[98] * 1000}


# --- ingest -----------------------------------------------------------------------------------------------


async def test_ingest(stack: Stack) -> None:
    worlds = [await database_sync_to_async(build_world)(str(n)) for n in range(RUNS)]
    names = [f"metric/{n}" for n in range(VALUES_PER_LINE)]
    bodies = [
        encode(
            *(
                Points(at=1.7e9, axis="step", x=x, values=dict.fromkeys(names, x / 3))
                for x in range(first, first + LINES_PER_BODY)
            )
        )
        for first in range(0, BODIES_PER_RUN * LINES_PER_BODY, LINES_PER_BODY)
    ]
    seconds: list[float] = []

    async def send(client: httpx.AsyncClient, world: World, offset: int, body: bytes) -> int:
        began = time.perf_counter()
        answer = await client.post(
            "/api/v1/agent/telemetry",
            content=single_chunk(world.trainer.pk, "main-0.jsonl", body, offset=offset),
            headers={"Authorization": f"Bearer {world.credential}"},
        )
        seconds.append(time.perf_counter() - began)
        assert answer.status_code == 200, answer.text
        [reply] = answer.json()["chunks"]
        assert reply["status"] == 200, reply
        return int(reply["offset"])

    async def ship(client: httpx.AsyncClient, world: World) -> None:
        offset = 0
        for number, body in enumerate(bodies):
            reached = await send(client, world, offset, body)
            if number % RESENT_EVERY == RESENT_EVERY - 1:
                before = bodies[number - 1]
                assert await send(client, world, offset - len(before), before + body) == reached
            offset = reached

    async with httpx.AsyncClient(base_url=stack.url, timeout=60, trust_env=False) as client:
        processor, web = time.process_time(), processor_seconds(stack)
        began = time.perf_counter()
        await asyncio.gather(*(ship(client, world) for world in worlds))
        wall = time.perf_counter() - began
        processor, web = time.process_time() - processor, processor_seconds(stack) - web
    lines = RUNS * BODIES_PER_RUN * LINES_PER_BODY
    points = lines * VALUES_PER_LINE
    stored = await database_sync_to_async(MetricPoint.objects.count)()
    frames = await database_sync_to_async(StreamFrame.objects.filter(type="points").count)()
    conflicts = await database_sync_to_async(_conflicts)()
    assert (stored, frames, conflicts) == (points, lines, 0)
    report(
        "ingest",
        points_per_second=points / wall,
        web_processes=1,
        runs_at_once=RUNS,
        lines_per_body=LINES_PER_BODY,
        values_per_line=VALUES_PER_LINE,
        bodies_sent_twice=RUNS * (BODIES_PER_RUN // RESENT_EVERY),
        points=points,
        points_lost=points - stored,
        points_doubled=conflicts,
        frames_per_second=lines / wall,
        seconds=wall,
        processor_seconds_of_the_client=processor,
        processor_seconds_of_the_web_process=web,
        **spread(seconds),
    )


def _conflicts() -> int:
    return sum(MetricSeries.objects.values_list("conflicts", flat=True)) + sum(
        OutboxFile.objects.values_list("bad_lines", flat=True)
    )


# --- from a job's file to a socket ------------------------------------------------------------------------


async def test_delay(stack: Stack, tmp_path: Path) -> None:
    worlds = await database_sync_to_async(_active_runs)()
    loop = asyncio.get_running_loop()
    shippers, outboxes = [], []
    for number in range(NODES):
        data = DataDirectory(tmp_path / f"node-{number}")
        data.create()
        records = []
        for world in worlds[number::NODES]:
            outboxes.append(Outbox(data.job(world.attempt.pk, "trainer", 0), 0))
            records.append(
                JobRecord(
                    job_id=world.trainer.pk,
                    run_id=world.run.pk,
                    attempt_id=world.attempt.pk,
                    epoch=1,
                    name="trainer",
                    kind=JobKind.TRAINER,
                    index=0,
                    slots=[],
                    grace_seconds=1.0,
                )
            )
        api = AgentApi(stack.url, worlds[number].credential)
        shipper = TelemetryShipper(api, data, jobs=lambda records=records: records, on_progress=lambda: None)  # type: ignore[misc]
        shippers.append(asyncio.create_task(shipper.run()))
    plan = Plan(
        port=stack.port, token=stack.token, topics=[f"run:{world.run.pk}" for world in worlds],
        sockets_per_topic=1, frames_per_topic=SECONDS_OF_POINTS,
    )  # fmt: skip
    crowd = await _crowd(plan)

    async def write(number: int, outbox: Outbox) -> None:
        """A line a second, as a trainer does, the runs spread over the second."""
        begin = loop.time() + number / len(outboxes)
        for x in range(SECONDS_OF_POINTS):
            await asyncio.sleep(max(0.0, begin + x - loop.time()))
            values = {f"metric/{n}": x + n / 7 for n in range(VALUES_OF_STEP)}
            outbox.write(Points(at=time.time(), axis="step", x=x, values=values))

    web, began = processor_seconds(stack), loop.time()
    await asyncio.gather(*(write(number, outbox) for number, outbox in enumerate(outboxes)))
    figures = await _figures_of(crowd)
    web, taken = processor_seconds(stack) - web, loop.time() - began
    for shipper_task in shippers:
        shipper_task.cancel()
    assert figures["frames"] == ACTIVE_RUNS * SECONDS_OF_POINTS and figures["gaps"] == 0
    report(
        "delay",
        active_runs=ACTIVE_RUNS,
        nodes=NODES,
        lines_per_second=ACTIVE_RUNS,
        values_per_line=VALUES_OF_STEP,
        share_of_a_processor_of_the_web_process=web / taken,
        **figures,
    )


def _active_runs() -> list[World]:
    """In the project of the stack, spread over so many nodes."""
    worlds = [build_world(f"active {n}") for n in range(ACTIVE_RUNS)]
    mine = [world.run.pk for world in worlds]
    Run.objects.filter(pk__in=mine).update(project=_project_of_token())
    for number, world in enumerate(worlds):
        Attempt.objects.filter(pk=world.attempt.pk).update(node=worlds[number % NODES].node)
    return worlds


def _project_of_token() -> Project:
    return Project.objects.exclude(team__name__startswith="team ").get()


# --- fan-out ----------------------------------------------------------------------------------------------


async def test_fanout(stack: Stack) -> None:
    plan = Plan(
        port=stack.port, token=stack.token, topics=["pool"], sockets_per_topic=SOCKETS, frames_per_topic=FRAMES,
        slow_sockets=SLOW_SOCKETS,
    )  # fmt: skip
    crowd = await _crowd(plan)

    @database_sync_to_async
    def publish(n: int) -> None:
        with transaction.atomic():
            event_stream.publish("pool", "points", {"n": n, "at": time.time(), "filling": "x" * 200})

    loop = asyncio.get_running_loop()
    begin, web = loop.time(), processor_seconds(stack)
    for n in range(FRAMES):
        await asyncio.sleep(max(0.0, begin + n / FRAMES_PER_SECOND - loop.time()))
        await publish(n)
    figures = await _figures_of(crowd)
    assert figures["frames"] == SOCKETS * FRAMES and figures["gaps"] == 0
    share = (processor_seconds(stack) - web) / (loop.time() - begin)
    report(
        "fanout", frames_per_second=FRAMES_PER_SECOND, share_of_a_processor_of_the_web_process=share, **figures
    )  # fmt: skip


async def _crowd(plan: Plan) -> asyncio.subprocess.Process:
    """Readers in a process of their own; returns when all are subscribed."""
    crowd = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.socket_crowd", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert crowd.stdin is not None and crowd.stdout is not None
    crowd.stdin.write(
        json.dumps({name: getattr(plan, name) for name in plan.__struct_fields__}).encode() + b"\n"
    )
    await crowd.stdin.drain()
    assert (await crowd.stdout.readline()).strip() == b"ready"
    return crowd


async def _figures_of(crowd: asyncio.subprocess.Process) -> dict[str, Any]:
    assert crowd.stdout is not None
    figures: dict[str, Any] = json.loads(await crowd.stdout.readline())
    assert await crowd.wait() == 0
    return figures


# --- reading ----------------------------------------------------------------------------------------------

_FILL = """
INSERT INTO telemetry_metricpoint (series_id, x, value, at)
SELECT %s, x, sin(x) * 1e3, to_timestamp(1700000000 + x) FROM generate_series(1, %s) AS x
"""


def test_chart(stack: Stack) -> None:
    world = build_world()
    Run.objects.filter(pk=world.run.pk).update(project=_project_of_token())
    series = MetricSeries.objects.create(
        run=world.run, attempt=world.attempt, name="reward/mean", source="trainer", axis="step"
    )
    with connection.cursor() as cursor:
        cursor.execute(_FILL, (series.pk, POINTS_OF_CHART))
        cursor.execute("ANALYZE telemetry_metricpoint")

    def seconds(client: httpx.Client, **query: Any) -> float:
        began = time.perf_counter()
        answer = client.get(f"/runs/{world.run.pk}/metrics", params={"names": "reward/mean", **query})
        taken = time.perf_counter() - began
        [line] = answer.raise_for_status().json()["series"]
        assert sum(line["count"]) == POINTS_OF_CHART and line["last"][-1] == pytest.approx(
            _value(POINTS_OF_CHART)
        )
        assert max(line["max"]) == pytest.approx(1000.0, abs=1e-6)
        return taken

    with stack.client() as client:
        from_points = [seconds(client) for _ in range(3)]
        rolling = time.perf_counter()
        for _ in range(1 + POINTS_OF_CHART // rollups.POINTS_AT_ONCE):
            rollups.roll_up_runs(now=clock.now())
        rolling = time.perf_counter() - rolling
        taken = [seconds(client) for _ in range(30)]
        finest = [seconds(client, max_points=20_000) for _ in range(10)]
    report(
        "chart", points=POINTS_OF_CHART, buckets=2000, **spread(taken),
        p95_ms_of_20000_buckets=spread(finest)["p95_ms"],
        median_ms_without_rollups=statistics.median(from_points) * 1000, seconds_to_roll_up=rolling,
    )  # fmt: skip


def _value(x: int) -> float:
    return math.sin(x) * 1e3


def test_run_list(stack: Stack) -> None:
    world = build_world("lists")
    statuses = [RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.RUNNING, RunStatus.QUEUED, RunStatus.STOPPED]
    spec = {
        "kind": "rl",
        "filling": {f"field_{n}": "x" * 40 for n in range(60)},
    }  # about as long as a real one
    project = _project_of_token()
    runs = Run.objects.bulk_create(
        Run(
            project=project, created_by=world.user, name=f"run {n} of {n % 37}", spec=spec,
            kind="rl" if n % 3 else "sft",
            dataset_version=world.run.dataset_version, base_model=world.run.base_model,
            status=statuses[n % 5], status_at=clock.now(), priority=500, slots_needed=2, created_at=clock.now(),
            tags=[f"tag-{n % 20}"], train_step=n % 900, total_train_steps=900, reward_mean=math.sin(n),
            staleness_mean=math.cos(n) if n % 3 else None, started_at=clock.now() - timedelta(seconds=n % 7919),
            ended_at=None if n % 5 in (2, 3) else clock.now(),
        )
        for n in range(LISTED_RUNS)
    )  # fmt: skip
    Checkpoint.objects.bulk_create(
        Checkpoint(
            project=run.project, run_id=run.pk, run_name=run.name, attempt_id=f"att_{n}_{step}", attempt_number=1,
            node_id="node", step=step, bytes=1, state=CheckpointState.STORED, created_at=clock.now(),
            stored_at=clock.now(), manifest_sha256=f"{n:064d}",
        )
        for n, run in enumerate(runs[::3])
        for step in (100, 200)
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    newest = [run.pk for run in sorted(runs, key=lambda run: run.pk)[-100:]]
    _fill_rewards(world, newest)
    queries: dict[str, dict[str, Any]] = {
        **{f"sorted by {sort}": {"sort": f"-{sort}"} for sort in SORTS},
        "first page": {}, "by status": {"status": "RUNNING,QUEUED"}, "by kind": {"kind": "sft"},
        "by part of the name": {"name": "of 36"}, "by tag": {"tag": "tag-7"}, "largest page": {"limit": 200},
    }  # fmt: skip
    taken: dict[str, list[float]] = {name: [] for name in queries} | {"deep page": []}
    with stack.client() as client:
        for _ in range(20):
            for name, query in queries.items():
                taken[name].append(_seconds_of_list(client, query))
        cursor_text = ""
        for page in range(40):
            began = time.perf_counter()
            answer = client.get("/runs", params={"cursor": cursor_text}).raise_for_status().json()
            if page >= 20:
                taken["deep page"].append(time.perf_counter() - began)
            cursor_text = answer["next_cursor"]
        sparklines = [_seconds_of_sparklines(client, newest) for _ in range(30)]
    pages = [seconds for name, times in taken.items() if name != "largest page" for seconds in times]
    report(
        "run_list", runs=LISTED_RUNS, runs_per_page=50, **spread(pages),
        p95_ms_by_query={name: spread(times)["p95_ms"] for name, times in taken.items()},
        p95_ms_of_100_sparklines=spread(sparklines)["p95_ms"], points_per_sparkline_run=POINTS_OF_LISTED_RUN,
    )  # fmt: skip


def _seconds_of_list(client: httpx.Client, query: dict[str, Any]) -> float:
    began = time.perf_counter()
    answer = client.get("/runs", params=query).raise_for_status().json()
    assert len(answer["data"]) == query.get("limit", 50)
    return time.perf_counter() - began


def _fill_rewards(world: World, run_ids: list[str]) -> None:
    """Rewards of each run, rolled up as after a while."""
    series = MetricSeries.objects.bulk_create(
        MetricSeries(run_id=run_id, attempt=world.attempt, name="reward/mean", source=run_id, axis="step")
        for run_id in run_ids
    )
    with connection.cursor() as cursor:
        for one in series:
            cursor.execute(_FILL, (one.pk, POINTS_OF_LISTED_RUN))
        cursor.execute("ANALYZE telemetry_metricpoint")
    rollups.roll_up_runs(now=clock.now())


def _seconds_of_sparklines(client: httpx.Client, run_ids: list[str]) -> float:
    began = time.perf_counter()
    answer = client.get("/runs/sparklines", params={"ids": ",".join(run_ids)}).raise_for_status().json()
    assert [len(one["step"]) > 20 for one in answer["data"]] == [True] * len(run_ids)
    return time.perf_counter() - began
