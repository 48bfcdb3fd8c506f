"""`oolong run metrics | logs | trajectories` and their methods, against this very control plane."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from control_plane.telemetry.ingest import outbox
from oolong.cli import run_telemetry
from oolong.contracts.telemetry import Points, TrajectoryLine
from tests.unit.control_plane.conftest import Done, SimulatedNode
from tests.unit.control_plane.telemetry.world import encode

STEPS = 12


@pytest.fixture
def run(start: Callable[..., Any], node: Callable[..., SimulatedNode]) -> str:
    """A run that has measured, written and sampled."""
    where = node()
    identity: str = start(where)["id"]
    job = where.job("trainer")
    lines: list[Any] = [
        Points(
            at=1.7e9 + x,
            axis="step",
            x=x,
            values={"reward/mean": None if x == 5 else x / 7, "loss/total": 1.0},
        )
        for x in range(STEPS)
    ]
    lines += [
        TrajectoryLine(
            at=1.7e9, step=n, group_id=f"0-{n}-0", prompt="p", answer="a", completion=f"so {n}", reward=n / 4, row=n,
            policy_versions=[n, 2], finish_reason="stop", token_ids=[n, n + 1], logprobs=[-0.5, -0.25],
            sample_reasons=["group"],
        )
        for n in range(4)
    ]  # fmt: skip
    outbox.ingest_outbox(job, "main-0.jsonl", offset=0, body=encode(*lines))
    outbox.ingest_log(job, 0, offset=0, body=b"INFO fine\nERROR broken pipe\nValueError: no\n")
    return identity


def table(done: Done) -> list[list[str]]:
    assert done.code == 0, done.err
    return [line.split("\t") for line in done.out.splitlines()]


def test_names_then_points_then_buckets_are_shown(oolong: Callable[..., Done], run: str) -> None:
    assert [row[0] for row in table(oolong("run", "metrics", run))] == ["loss/total", "reward/mean"]
    points = table(oolong("run", "metrics", run, "reward/mean"))
    assert len(points) == STEPS and points[5][4] == "-" and points[7][4] == "1"
    buckets = table(oolong("run", "metrics", run, "reward/mean", "--resolution", "3", "--x-axis", "wall"))
    assert len(buckets) == 3 and sum(int(row[-1]) for row in buckets) == STEPS
    found = json.loads(oolong("run", "metrics", run, "reward/mean", "--from", "3", "--to", "4", "--json").out)
    assert found["series"][0]["x"] == [3, 4]


def test_every_point_is_exported(
    oolong: Callable[..., Done], run: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_telemetry, "POINTS_AT_ONCE", 5)
    rows = list(
        csv.DictReader(io.StringIO(oolong("run", "metrics", run, "reward/mean", "--export", "-").out))
    )
    assert [int(row["x"]) for row in rows] == list(range(STEPS))
    assert [row["value"] for row in rows] == ["" if x == 5 else repr(x / 7) for x in range(STEPS)]
    file = tmp_path / "points.parquet"
    assert oolong("run", "metrics", run, "--export", str(file)).code == 0
    columns = pq.read_table(file).to_pydict()
    assert columns["value"] == [1.0] * STEPS + [None if x == 5 else x / 7 for x in range(STEPS)]
    refused = oolong("run", "metrics", run, "--export", "points.xlsx")
    assert refused.code == 2 and ".csv or .parquet" in refused.err


def test_logs_are_searched_by_text_pattern_and_level(oolong: Callable[..., Done], run: str) -> None:
    assert oolong("run", "logs", run, "--search", "BROKEN").out == "trainer | ERROR broken pipe\n"
    assert (
        oolong("run", "logs", run, "--search", "^value", "--regex", "--job", "trainer").out
        == "ValueError: no\n"
    )
    assert len(oolong("run", "logs", run, "--level", "error").out.splitlines()) == 2
    assert oolong("run", "logs", run, "--level", "loud").code == 2
    assert oolong("run", "logs", run, "--search", "(", "--regex").code == 2


def test_trajectories_are_listed_by_filter_and_shown_whole(oolong: Callable[..., Done], run: str) -> None:
    listed = table(oolong("run", "trajectories", run, "--reward-min", "0.5"))
    assert [row[1] for row in listed] == ["3", "2"]
    assert [row[1] for row in table(oolong("run", "trajectories", run, "--search", "so 1"))] == ["1"]
    shown = oolong("run", "trajectory", run, listed[0][0])
    assert "so 3" in shown.out
    whole = json.loads(oolong("run", "trajectory", run, listed[0][0], "--json").out)
    assert (whole["token_ids"], whole["logprobs"], whole["versions"]) == ([3, 4], [-0.5, -0.25], [3, 3])
    assert oolong("run", "trajectory", run, "999999").code == 2
    assert oolong("run", "trajectories", run, "--because", "luck").code != 0
