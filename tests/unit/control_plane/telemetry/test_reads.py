from __future__ import annotations

from typing import Any

import pytest

from control_plane.core.api.errors import Problem
from control_plane.runs.models import Run
from control_plane.telemetry.ingest import outbox
from control_plane.telemetry.models import MetricSeries
from control_plane.telemetry.query import charts, selectors
from control_plane.telemetry.query.serializers import LogFileSerializer
from oolong.contracts import telemetry as contract
from tests.unit.control_plane.telemetry.world import World, build_world, encode, step

FILE = "main-0.jsonl"


@pytest.fixture
def world(db: None) -> World:
    return build_world()


def ship(world: World, *lines: contract.AnyLine) -> None:
    outbox.ingest_outbox(world.trainer.pk, FILE, offset=0, body=encode(*lines))


def chart(world: World, *, run: Run | None = None, **wanted: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = charts.metrics(run or world.run, charts.ChartQuery(**wanted))["series"]
    return found


def test_a_short_series_is_given_point_by_point(world: World) -> None:
    ship(world, step(1, reward_mean=0.5), step(3, reward_mean=0.75, other=1.0))
    found = charts.metrics(world.run, charts.ChartQuery(names=["reward/mean"]))
    assert found == {
        "series": [
            {
                "name": "reward/mean", "unit": "", "axis": "step", "source": "trainer", "attempt": 1,
                "x": [1, 3], "value": [0.5, 0.75], "at": [1_700_000_001.0, 1_700_000_003.0], "min": None, "max": None,
                "last": None, "count": None, "nonfinite": None, "x_axis": None, "parts": None,
            }
        ],
        "seq": 2,
    }  # fmt: skip
    assert [one["name"] for one in chart(world)] == ["other", "reward/mean"]
    assert chart(world, axis="time") == []


def test_a_range_and_a_limit_walk_through_a_series(world: World) -> None:
    ship(world, *(step(x) for x in range(10)))
    [first] = chart(world, limit=4)
    assert first["x"] == [0, 1, 2, 3]
    assert chart(world, first=first["x"][-1] + 1)[0]["x"] == [4, 5, 6, 7, 8, 9]
    assert chart(world, first=3, last=5)[0]["x"] == [3, 4, 5]
    assert chart(world, first=30) == [] and chart(world, attempt=2) == [] and chart(world, source="x") == []


def test_a_long_series_comes_in_buckets_that_cover_every_point(world: World) -> None:
    values = [float((x * 7919) % 101) for x in range(5000)]
    ship(world, *(step(x, reward_mean=value) for x, value in enumerate(values)))
    [series] = chart(world, max_points=100)
    assert 50 <= len(series["x"]) <= 100 and series["x"][-1] == 4999
    begin = 0
    for bucket, end in enumerate(series["x"]):
        part = values[begin : end + 1]
        assert series["value"][bucket] == pytest.approx(sum(part) / len(part))
        assert (series["min"][bucket], series["max"][bucket]) == (min(part), max(part))
        assert (series["last"][bucket], series["count"][bucket]) == (part[-1], len(part))
        begin = end + 1
    assert 1000 <= len(chart(world)[0]["x"]) <= charts.DEFAULT_POINTS


def test_a_value_that_is_not_finite_is_null_and_no_part_of_a_mean(world: World) -> None:
    lines = [step(x, loss_total=float(x)) for x in range(50)]
    lines[7] = contract.Points(at=1.0, axis="step", x=7, values={"loss/total": None})
    ship(world, *lines)
    assert chart(world)[0]["value"][6:9] == [6.0, None, 8.0]
    [series] = chart(world, max_points=5)
    assert (series["nonfinite"][0], series["count"][0], series["max"][0]) == (1, 10, 9.0)
    assert series["value"][0] == pytest.approx((45 - 7) / 9)
    assert MetricSeries.objects.get().conflicts == 0


def test_metric_names_tell_units_sources_and_conflicts(world: World) -> None:
    ship(world, step(1, staleness_mean=1.0), step(4, staleness_mean=2.0), step(4, staleness_mean=3.0))
    assert selectors.metric_names(world.run) == [
        {
            "name": "staleness/mean", "unit": "versions", "axis": "step", "sources": ["trainer"], "last_x": 4,
            "conflicts": 1, "help": "mean staleness of the batch's trajectories at training",
        }
    ]  # fmt: skip
    [series] = charts.metrics(world.run, charts.ChartQuery(names=["staleness/mean"]))["series"]
    assert series["unit"] == "versions"


def test_the_newest_histograms_come_in_ascending_order(world: World) -> None:
    ship(world, *(contract.Histogram(at=1.0, name="h", x=x, counts={"0": x}) for x in range(5)))
    assert [row.x for row in selectors.histograms(world.run, name="h", after_x=None, limit=2)] == [3, 4]
    assert [row.x for row in selectors.histograms(world.run, name="h", after_x=2, limit=9)] == [3, 4]


def test_a_document_that_nobody_wrote_does_not_exist(world: World) -> None:
    with pytest.raises(Problem, match="pipeline"):
        selectors.state_snapshot(world.run, "pipeline")


def read_log(world: World, offset: int, limit: int = 65536) -> dict[str, object]:
    return selectors.log(world.run, world.trainer.pk, incarnation=None, offset=offset, limit=limit)


def test_a_log_is_read_by_offset_across_its_pieces(world: World) -> None:
    for n in range(10):
        outbox.ingest_log(world.trainer.pk, 0, offset=n * 10, body=b"%09d\n" % n)
    assert read_log(world, 0)["text"] == "".join(f"{n:09d}\n" for n in range(10))
    piece = read_log(world, 25, limit=20)
    assert (piece["offset"], piece["next_offset"], piece["text"]) == (25, 45, "0002\n000000003\n00000")
    assert read_log(world, -10)["text"] == "000000009\n"
    assert read_log(world, 4711) == {
        "job": world.trainer.pk, "incarnation": 0, "offset": 4711, "next_offset": 4711, "text": "", "end": False,
        "dropped_bytes": 0, "removed_at": None,
    }  # fmt: skip
    assert [LogFileSerializer.render(file) for file in selectors.logs(world.run)] == [
        {
            "job": world.trainer.pk, "name": "trainer", "attempt": 1, "incarnation": 0, "bytes": 100,
            "dropped_bytes": 0, "removed_at": None,
        }
    ]  # fmt: skip


def test_a_piece_of_log_ends_at_a_whole_character(world: World) -> None:
    text = "ab✓cd✓"
    outbox.ingest_log(world.trainer.pk, 0, offset=0, body=text.encode())
    read, offset = "", 0
    while offset < len(text.encode()):
        piece = read_log(world, offset, limit=4)
        read += str(piece["text"])
        offset = int(str(piece["next_offset"]))
    assert read == text


def test_the_end_of_a_log_is_known_once_the_job_has_exited_and_all_was_read(world: World) -> None:
    outbox.ingest_log(world.trainer.pk, 0, offset=0, body=b"bye\n")
    assert read_log(world, 0)["end"] is False
    world.trainer.refresh_from_db()
    world.trainer.state, world.trainer.outbox = "exited", {"output.log#0": 8}
    world.trainer.save()
    assert read_log(world, 0)["end"] is False
    outbox.ingest_log(world.trainer.pk, 0, offset=4, body=b"now\n")
    assert read_log(world, 0)["end"] is True
    assert read_log(world, 0, limit=4)["end"] is False


def test_the_newest_incarnation_is_shown_unless_another_one_is_named(world: World) -> None:
    outbox.ingest_log(world.rollout.pk, 0, offset=0, body=b"first\n")
    outbox.ingest_log(world.rollout.pk, 1, offset=0, body=b"second\n")
    newest = selectors.log(world.run, world.rollout.pk, incarnation=None, offset=0, limit=100)
    assert (newest["incarnation"], newest["text"]) == (1, "second\n")
    first = selectors.log(world.run, world.rollout.pk, incarnation=0, offset=0, limit=100)
    assert first["text"] == "first\n"


def test_log_of_a_job_of_another_run_is_not_found(world: World) -> None:
    other = build_world("two")
    with pytest.raises(Problem, match=other.trainer.pk):
        selectors.log(world.run, other.trainer.pk, incarnation=None, offset=0, limit=100)
