"""Long series: rollups, packed points, joined attempts and ancestors. Whatever stands where, the answer is the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from control_plane.checkpoints.models import Checkpoint, CheckpointState
from control_plane.core.infra import clock
from control_plane.runs.models import Attempt, Job, Run
from control_plane.telemetry.compaction import point_chunks, rollups
from control_plane.telemetry.ingest import outbox
from control_plane.telemetry.models import MetricChunk, MetricPoint, MetricRollup, MetricSeries
from control_plane.telemetry.query import charts
from oolong.contracts.telemetry import Points
from tests.unit.control_plane.telemetry.world import World, build_world, encode, step

NAME = "reward/mean"
FILL = """
INSERT INTO telemetry_metricpoint (series_id, x, value, at)
SELECT %s, x, CASE WHEN x %% 5003 = 7 THEN 'NaN' ELSE sin(x) * 1e3 END, to_timestamp(1700000000 + x)
FROM generate_series(%s, %s) AS x
"""


@pytest.fixture
def world(db: None) -> World:
    return build_world()


def series_of(world: World, *, first: int, last: int) -> MetricSeries:
    """A series with a point at each x, one in about 5000 not finite."""
    series = MetricSeries.objects.create(
        run=world.run, attempt=world.attempt, name=NAME, source="trainer", axis="step"
    )
    with connection.cursor() as cursor:
        cursor.execute(FILL, (series.pk, first, last))
    return series


def chart(run: Run, **wanted: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = charts.metrics(run, charts.ChartQuery(**wanted))["series"]
    return found


def ship(job: Job, *lines: Points, file: str = "late-0.jsonl") -> None:
    outbox.ingest_outbox(job.pk, file, offset=0, body=encode(*lines))


VIEWS: list[dict[str, Any]] = [
    {"max_points": 50},
    {"max_points": 700},
    {"max_points": 100, "first": 777, "last": 21_111},
    {"max_points": 20, "first": -3000, "last": 15_000},
    {"limit": 5000, "first": 4000},
    {"first": 8190, "last": 8200},
    {"first": 20_000, "last": 20_000},
]


def views(run: Run) -> list[Any]:
    """Answers without their means, which depend on the order of adding in the last digits."""
    answers = [chart(run, **view) for view in VIEWS]
    for lines in answers:
        for line in lines:
            line["value"] = [value if value is None else round(value, 6) for value in line["value"]]
    return answers


def test_a_chart_is_the_same_from_points_rollups_and_packed_points(world: World) -> None:
    series = series_of(world, first=-5000, last=24_999)
    plain = views(world.run)
    assert all(lines and lines[0]["x"] for lines in plain)

    rollups.roll_up_runs(now=clock.now())
    series.refresh_from_db()
    assert series.rolled_to == 24_576
    assert set(MetricRollup.objects.values_list("width", flat=True)) == {16, 256, 4096}
    assert views(world.run) == plain

    Run.objects.update(status="SUCCEEDED", ended_at=clock.now() - timedelta(hours=2))
    assert point_chunks.compact_ended_runs(now=clock.now()) == 30_000
    assert not MetricPoint.objects.exists() and MetricChunk.objects.count() == 8
    assert views(world.run) == plain
    assert point_chunks.compact_ended_runs(now=clock.now()) == 0


def test_half_packed_series_read_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    series = series_of(world, first=0, last=24_999)
    plain = views(world.run)
    monkeypatch.setattr(point_chunks, "POINTS_AT_ONCE", 8192)
    assert point_chunks.compact(series) == 8192
    assert (series.stored_as, MetricPoint.objects.count()) == ("mixed", 25_000 - 8192)
    assert views(world.run) == plain
    while series.stored_as != "chunks":
        point_chunks.compact(series)
    assert views(world.run) == plain


def test_chunks_that_differ_leave_the_rows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    series_of(world, first=0, last=99)
    Run.objects.update(status="FAILED", ended_at=clock.now() - timedelta(hours=2))
    monkeypatch.setattr(
        point_chunks, "_COMPACT", point_chunks._COMPACT.replace("array_agg(value", "array_agg(value + 1")
    )
    assert point_chunks.compact_ended_runs(now=clock.now()) == 0
    assert MetricPoint.objects.count() == 100 and not MetricChunk.objects.exists()


def test_a_run_that_has_only_just_ended_is_not_packed(world: World) -> None:
    series_of(world, first=0, last=9)
    Run.objects.update(status="SUCCEEDED", ended_at=clock.now() - timedelta(minutes=5))
    assert point_chunks.compact_ended_runs(now=clock.now()) == 0


def test_a_late_point_is_in_the_chart_and_its_rollups_are_made_anew(world: World) -> None:
    series = series_of(world, first=5000, last=20_000)
    rollups.roll_up_runs(now=clock.now())
    ship(world.trainer, step(4999, reward_mean=1e6), step(30_000, reward_mean=-1e6))
    series.refresh_from_db()
    assert series.rolled_to is None and not MetricRollup.objects.exists()
    for _ in range(2):
        [line] = chart(world.run, max_points=10)
        assert (max(line["max"]), min(line["min"]), sum(line["count"])) == (1e6, -1e6, 15_003)
        rollups.roll_up_runs(now=clock.now())
    series.refresh_from_db()
    assert series.rolled_to == 28_672


def test_a_late_point_of_a_packed_series_keeps_its_keys(world: World) -> None:
    series = series_of(world, first=0, last=5000)
    while series.stored_as != "chunks":
        point_chunks.compact(series)
    ship(world.trainer, step(5, reward_mean=123.0), step(5001, reward_mean=1.0))
    series.refresh_from_db()
    assert (series.stored_as, series.conflicts, MetricPoint.objects.count()) == ("rows", 1, 5002)
    assert not MetricChunk.objects.exists()
    assert chart(world.run, first=5, last=5)[0]["value"] != [123.0]


def test_the_largest_numbers_have_a_mean(world: World) -> None:
    ship(world.trainer, *(step(x, reward_mean=1.7e308) for x in range(5000)))
    for _ in range(2):
        [line] = chart(world.run, max_points=2)
        assert line["value"] == pytest.approx([1.7e308] * len(line["value"]))
        rollups.roll_up_runs(now=clock.now())


# --- attempts and ancestors -------------------------------------------------------------------------------


def another_attempt(world: World) -> Job:
    attempt = Attempt.objects.create(
        run=world.run,
        number=2,
        epoch=2,
        node=world.node,
        token="t",
        ports={},
        status="ENDED",
        created_at=clock.now(),
    )
    return Job.objects.create(attempt=attempt, name="trainer", kind="trainer")


def test_of_steps_done_twice_a_stitched_line_has_the_later_attempts(world: World) -> None:
    ship(world.trainer, *(step(x, reward_mean=1.0) for x in range(1, 11)))
    second = another_attempt(world)
    ship(second, *(step(x, reward_mean=2.0) for x in range(8, 14)))
    ship(second, *(step(x, reward_mean=3.0) for x in range(12, 16)), file="main-1.jsonl")
    assert len(chart(world.run)) == 3
    [line] = chart(world.run, join="attempts")
    assert line["x"] == list(range(1, 16))
    assert line["value"] == [1.0] * 7 + [2.0] * 4 + [3.0] * 4
    assert [(part["attempt"], part["source"], part["first_x"], part["last_x"]) for part in line["parts"]] == [
        (1, "trainer", 1, 7), (2, "trainer", 8, 11), (2, "trainer#1", 12, 15),
    ]  # fmt: skip
    [short] = chart(world.run, join="attempts", max_points=6)
    assert len(short["x"]) <= 6 and sum(short["count"]) == 15 and short["x"][-1] == 15
    assert chart(world.run, join="attempts", limit=9)[0]["x"] == list(range(1, 10))


def descend(world: World, name: str, at_step: int, relation: str) -> World:
    checkpoint = Checkpoint.objects.create(
        project=world.project, run_id=world.run.pk, run_name="r", attempt_id=world.attempt.pk, attempt_number=1,
        step=at_step, state=CheckpointState.STORED, bytes=1, node_id=world.node.pk, created_at=clock.now(),
    )  # fmt: skip
    child = build_world(name)
    field = "resume_checkpoint" if relation == "retry" else "initial_checkpoint"
    Run.objects.filter(pk=child.run.pk).update(
        **{field: checkpoint, "project": world.project, "relation": relation}
    )
    child.run.refresh_from_db()
    return child


@pytest.mark.parametrize(("relation", "first_step"), [("retry", 6), ("fork", 1)])
def test_a_lineage_is_one_line_counted_from_its_oldest_run(
    world: World, relation: str, first_step: int
) -> None:
    ship(world.trainer, *(step(x, reward_mean=1.0) for x in range(1, 11)))
    child = descend(world, "child", 5, relation)
    ship(child.trainer, *(step(x, reward_mean=2.0) for x in range(first_step, first_step + 3)))
    [line] = chart(child.run, join="lineage")
    assert line["x"] == list(range(1, 9)) and line["value"] == [1.0] * 5 + [2.0] * 3
    assert [part["run"] for part in line["parts"]] == [world.run.pk, child.run.pk]
    assert [one["x"] for one in chart(child.run)] == [list(range(first_step, first_step + 3))]


def test_a_checkpoint_of_another_project_is_where_a_lineage_begins(world: World) -> None:
    ship(world.trainer, step(1))
    child = descend(world, "child", 5, "fork")
    Run.objects.filter(pk=child.run.pk).update(project=child.project)
    child.run.refresh_from_db()
    assert [found.run_id for found in charts.lineage(child.run)] == [child.run.pk]


def test_points_lie_against_tokens_versions_and_the_clock(world: World) -> None:
    ship(
        world.trainer,
        *(step(x, reward_mean=1.0, perf_trained_tokens=100.0, policy_version=x + 3.0) for x in range(1, 5)),
    )

    def on(x_axis: str, **wanted: Any) -> list[float]:
        [line] = chart(world.run, names=[NAME], x_axis=x_axis, **wanted)
        found: list[float] = line["x_axis"]
        return found

    assert on("tokens") == [100.0, 200.0, 300.0, 400.0]
    assert on("tokens", first=3) == [300.0, 400.0]
    assert on("version") == [4.0, 5.0, 6.0, 7.0]
    assert on("wall")[0] == 1_700_000_001.0
    other = build_world("without")
    ship(other.trainer, step(1, reward_mean=1.0))
    assert chart(other.run, x_axis="tokens")[0]["x_axis"] == [None]


# --- the door ---------------------------------------------------------------------------------------------


@pytest.fixture
def ask(world: World, client: Client) -> Callable[..., Any]:
    token = world.token()
    return lambda **query: client.get(
        f"/api/v1/runs/{world.run.pk}/metrics", query, headers={"Authorization": f"Bearer {token}"}
    )


def test_range_resolution_and_stitching_over_http(world: World, ask: Callable[..., Any]) -> None:
    series_of(world, first=0, last=4999)
    [line] = ask(names=NAME, from_x=1000, to_x=2999, max_points=40, join="attempts", x_axis="wall").json()[
        "series"
    ]
    assert sum(line["count"]) == 2000 and len(line["x"]) <= 40 and line["x_axis"] == line["at"]
    assert ask(names=NAME, from_x=5, after_x=7, limit=1).json()["series"][0]["x"] == [8]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"join": "forks"}, "/join"), ({"axis": "time", "join": "attempts"}, "/join"),
        ({"axis": "time", "x_axis": "tokens"}, "/x_axis"), ({"x_axis": "loss"}, "/x_axis"),
        ({"from_x": "5", "to_x": "4"}, "/to_x"), ({"from_x": str(2**60)}, "/from_x"), ({"attempt": "0"}, "/attempt"),
    ],
)  # fmt: skip
def test_a_wrong_parameter_names_its_field(
    ask: Callable[..., Any], query: dict[str, str], field: str
) -> None:
    answer = ask(**query)
    assert answer.status_code == 422 and answer.json()["errors"][0]["pointer"] == field
