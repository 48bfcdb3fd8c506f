"""A process that packs telemetry is killed (SIGKILL) before each of its statements and before its commit.

The process that gets the place to die at imports Django once and forks for each death: it has no threads and no
connection of its own, so a fork of it is like a process that was just started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from django.db import connection

from control_plane.core.infra import clock
from control_plane.telemetry.compaction import point_chunks
from control_plane.telemetry.ingest import outbox
from control_plane.telemetry.models import MetricChunk, MetricPoint, MetricRollup
from oolong.contracts.lifecycle import RunStatus
from oolong.contracts.telemetry import Points
from tests.unit.control_plane.telemetry.world import World, build_world, encode

ROOT = Path(__file__).resolve().parents[2]
POINTS = 10_000

DYING = """
import os, signal, sys
import django
django.setup()
from django.db import connection
from control_plane.core.infra import clock
from control_plane.telemetry.compaction import point_chunks

def die_at(number):
    seen = 0
    def count():
        nonlocal seen
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
    def before(execute, sql, params, many, context):
        count()
        return execute(sql, params, many, context)
    commit = connection.commit
    def commit_too():
        count()
        commit()
    connection.commit = commit_too
    connection.execute_wrappers.append(before)
    point_chunks.compact_ended_runs(now=clock.now())

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        die_at(int(line))
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture
def world(transactional_db: None) -> World:
    """A run that ended long ago, with a series of three chunks and its rollups."""
    world = build_world()
    offset = 0
    for start in range(0, POINTS, 2000):
        steps = range(start, start + 2000)
        body = encode(*(Points(at=1.7e9 + x, axis="step", x=x, values={"loss/total": x / 7}) for x in steps))
        offset = outbox.ingest_outbox(world.trainer.pk, "main-0.jsonl", offset=offset, body=body)
    world.run.status, world.run.ended_at = RunStatus.SUCCEEDED, clock.now() - 2 * point_chunks.SETTLE_TIME
    world.run.save()
    return world


@pytest.fixture
def dying(world: World) -> Iterator[subprocess.Popen[str]]:
    at = connection.settings_dict
    url = f"postgresql://{at['USER']}:{at['PASSWORD']}@{at['HOST']}:{at['PORT']}/{at['NAME']}"
    process = subprocess.Popen(
        [sys.executable, "-c", DYING],
        env=os.environ | {"DATABASE_URL": url, "PYTHONPATH": str(ROOT / "platform")},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield process
    process.kill()
    process.wait()


def everything() -> tuple[list[tuple[int, float]], int]:
    """All points, be they rows or in chunks, sorted; and how many rollups stand for them."""
    found = list(MetricPoint.objects.values_list("x", "value"))
    for chunk in MetricChunk.objects.all():
        found += zip(chunk.xs, chunk.values, strict=True)
    return sorted(found), MetricRollup.objects.count()


def test_whenever_the_packing_process_is_killed_nothing_is_lost_or_double(
    world: World, dying: subprocess.Popen[str]
) -> None:
    points, _ = everything()
    assert [x for x, _ in points] == list(range(POINTS))
    deaths = 0
    while (status := ask(dying.stdin, dying.stdout, deaths + 1)) != 0:
        deaths += 1
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        assert everything()[0] == points, f"killed before statement {deaths}"
    assert deaths > 8, "it was not killed at every statement and commit"
    assert everything()[0] == points
    assert not MetricPoint.objects.exists() and MetricChunk.objects.count() == 3
    assert point_chunks.compact_ended_runs(now=clock.now()) == 0
    series = world.run.series.get()
    covered = sum(MetricRollup.objects.filter(series=series, width=16).values_list("points", flat=True))
    assert covered == POINTS // 4096 * 4096, "rollups of a killed pass are neither missing nor twice"


def ask(words: IO[str] | None, answers: IO[str] | None, number: int) -> int:
    assert words is not None and answers is not None
    words.write(f"{number}\n")
    words.flush()
    return int(answers.readline())
