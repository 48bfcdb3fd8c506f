"""How fast the dashboard draws in a real Chromium. Prints figures; fails only when something is missing on the page.

`python3 manage.py bench --only KEY`, or pytest -s on this file.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction
from playwright.sync_api import Page

from control_plane.core.infra import clock
from control_plane.core.stream import event_stream
from control_plane.runs.models import Run
from control_plane.telemetry.compaction import rollups
from control_plane.telemetry.models import MetricSeries
from local_stack import dashboard
from local_stack.paths import checkout_paths
from tests.bench.record import ROOT
from tests.bench.test_telemetry_speed import (
    _FILL,
    POINTS_OF_CHART,
    _project_of_token,
    report,
    spread,
    stack,
)
from tests.integration.stream.stack import Stack
from tests.support.browser import chromium
from tests.unit.control_plane.telemetry.world import World, build_world

__all__ = ["stack"]  # the fixture

OPENED = 20  # times that the chart of a million points is opened

RUNS = 10
CHARTS = 20
STEPS = 1000  # of each run, when the page opens
STEPS_PER_SECOND = 2  # of each run, while frames are counted
SECONDS = 10

# When the chart has points and the frame after it was shown, in milliseconds of the page's clock.
WATCH = """
const look = () => {
  const drawn = document.querySelector("[data-chart='reward/mean'] canvas");
  if (drawn === null) requestAnimationFrame(look);
  else requestAnimationFrame(() => requestAnimationFrame(() => { window.shownAt = performance.now(); }));
};
requestAnimationFrame(look);
"""
TIMES = """() => {
  const [data] = performance.getEntriesByType("resource").filter(({name}) => /metrics\\?.*axis=step/.test(name));
  return [window.shownAt - data.responseEnd, window.shownAt - data.startTime];
}"""
COUNT_FRAMES = """seconds => new Promise(resolve => {
  const times = [];
  const next = now => {
    times.push(now);
    if (now - times[0] < seconds * 1000) requestAnimationFrame(next);
    else resolve(times);
  };
  requestAnimationFrame(next);
})"""


@contextmanager
def signed_in(stack: Stack, **viewport: int) -> Iterator[Page]:
    if not dashboard.build_if_needed(checkout_paths(ROOT), echo=print):
        pytest.fail("the dashboard is not built")
    path = stack.plane.login_path()
    with chromium() as browser:
        page = browser.new_context(base_url=stack.url, viewport=viewport).new_page()  # type: ignore[arg-type]
        page.goto(path)
        yield page


def filled(world: World, names: list[str], steps: int) -> None:
    """The run in the project of the browser's user, with so many points of each metric."""
    Run.objects.filter(pk=world.run.pk).update(project=_project_of_token())
    for name in names:
        series = MetricSeries.objects.create(
            run=world.run, attempt=world.attempt, name=name, source="trainer", axis="step"
        )
        with connection.cursor() as cursor:
            cursor.execute(_FILL, (series.pk, steps))


def test_pixels(stack: Stack) -> None:
    world = build_world()
    filled(world, ["reward/mean"], POINTS_OF_CHART)
    for _ in range(1 + POINTS_OF_CHART // rollups.POINTS_AT_ONCE):
        rollups.roll_up_runs(now=clock.now())
    drawn: list[float] = []
    requested: list[float] = []
    with signed_in(stack, width=1440, height=1000) as page:
        page.add_init_script(WATCH)
        for _ in range(OPENED):
            page.goto(f"/runs/compare?runs={world.run.pk}&metrics=reward/mean")
            page.wait_for_function("() => window.shownAt !== undefined")
            since_data, since_request = page.evaluate(TIMES)
            drawn.append(since_data / 1000)
            requested.append(since_request / 1000)
        points = int(page.locator("[data-chart='reward/mean']").get_attribute("data-points") or 0)
    assert points > 500
    report(
        "pixels", points=POINTS_OF_CHART, drawn_points=points, opened=OPENED, **spread(drawn),
        p95_ms_from_request=spread(requested)["p95_ms"],
    )  # fmt: skip


def test_frames(stack: Stack) -> None:
    names = ["reward/mean", *(f"bench/metric_{n:02}" for n in range(CHARTS - 1))]
    worlds = [build_world(str(n)) for n in range(RUNS)]
    for world in worlds:
        filled(world, names, STEPS)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE telemetry_metricpoint")
    stopping = threading.Event()
    trainers = threading.Thread(target=_train, args=(worlds, names, stopping))
    points = "Number(document.querySelector(\"[data-chart='reward/mean']\")?.dataset.points ?? 0)"
    # All charts are on the screen: three in a row, of 250 pixels.
    with signed_in(stack, width=1440, height=2900) as page:
        runs = ",".join(world.run.pk for world in worlds)
        page.goto(f"/runs/compare?runs={runs}&metrics={','.join(names)}")
        page.wait_for_function(f"([runs, steps]) => {points} >= runs * steps", arg=[RUNS, STEPS])
        page.wait_for_function("charts => document.querySelectorAll('canvas').length === charts", arg=CHARTS)
        trainers.start()
        try:
            page.wait_for_function(f"least => {points} > least", arg=RUNS * STEPS)
            before = int(page.evaluate(f"() => {points}"))
            times: list[float] = page.evaluate(COUNT_FRAMES, SECONDS)
            gained = int(page.evaluate(f"() => {points}")) - before
        finally:
            stopping.set()
            trainers.join()
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gained > RUNS * SECONDS * STEPS_PER_SECOND / 2  # live points are drawn, not put off
    report(
        "frames", charts=CHARTS, runs=RUNS, points_of_a_line=STEPS, steps_per_second_of_a_run=STEPS_PER_SECOND,
        frames_per_second=1000 / statistics.mean(gaps), longest_gap_ms=max(gaps),
        p95_gap_ms=statistics.quantiles(gaps, n=20)[-1], points_gained=gained,
    )  # fmt: skip


def _train(worlds: list[World], names: list[str], stopping: threading.Event) -> None:
    """A train step of each run in turn, evenly over the time."""
    began = time.monotonic()
    for number in range(10**6):
        if stopping.wait(max(0.0, began + number / (RUNS * STEPS_PER_SECOND) - time.monotonic())):
            break
        world, step = worlds[number % RUNS], STEPS + 1 + number // RUNS
        frame: dict[str, Any] = {
            "axis": "step", "x": step, "attempt": 1, "source": "trainer", "at": 1_700_000_000 + step,
            "values": {name: float(step % 10) * 100 for name in names},
        }  # fmt: skip
        with transaction.atomic():
            event_stream.publish(f"run:{world.run.pk}", "points", frame)
    connection.close()
