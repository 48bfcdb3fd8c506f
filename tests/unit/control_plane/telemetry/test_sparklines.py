"""The reward of many runs at a glance: bounded, in one request, and only of runs that the caller sees."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from control_plane.core.infra import clock
from control_plane.runs.models import Attempt, Job, Run
from control_plane.telemetry.compaction import point_chunks, rollups
from control_plane.telemetry.ingest import outbox
from control_plane.telemetry.query import sparklines
from oolong.client import Client as SDK
from oolong.contracts.telemetry import Points
from tests.unit.control_plane.telemetry.world import World, build_world, encode, step


@pytest.fixture
def world(db: None) -> World:
    return build_world()


@pytest.fixture
def read(world: World, client: Client) -> Callable[..., Any]:
    token = world.token("runs:read")
    return lambda ids: client.get(
        "/api/v1/runs/sparklines", {"ids": ids}, headers={"Authorization": f"Bearer {token}"}
    )


def ship(job: Job, *lines: Points, file: str = "main-0.jsonl") -> None:
    outbox.ingest_outbox(job.pk, file, offset=0, body=encode(*lines))


def another_run(world: World, name: str) -> World:
    other = build_world(name)
    Run.objects.filter(pk=other.run.pk).update(project=world.project)
    return other


def second_attempt(world: World) -> Job:
    attempt = Attempt.objects.create(
        run=world.run, number=2, epoch=2, node=world.node, token="t", ports={}, status="ENDED",
        created_at=clock.now(),
    )  # fmt: skip
    return Job.objects.create(attempt=attempt, name="trainer", kind="trainer")


def curve(world: World) -> tuple[list[int], list[float | None]]:
    [found] = sparklines.rewards(world.caller, [world.run.pk])
    return found["step"], found["reward"]


def test_a_short_series_comes_point_by_point(world: World) -> None:
    ship(world.trainer, *(step(x, reward_mean=x / 4) for x in range(1, 41)))
    assert curve(world) == (list(range(1, 41)), [x / 4 for x in range(1, 41)])


@pytest.mark.parametrize("points", [41, 100, 5000, 30_001])
def test_a_long_series_comes_in_at_most_40_buckets_whether_rolled_up_or_packed(
    world: World, points: int
) -> None:
    ship(world.trainer, *(step(x, reward_mean=float(x)) for x in range(points)))
    steps, rewards = curve(world)
    assert 10 <= len(steps) <= 40 and steps[-1] == points - 1
    assert rewards == sorted(r for r in rewards if r is not None)
    mean_of_first = steps[0] / 2  # the bucket holds 0 .. steps[0]
    assert rewards[0] == pytest.approx(mean_of_first)

    rollups.roll_up_runs(now=clock.now())
    assert curve(world) == (steps, pytest.approx(rewards))
    Run.objects.update(status="SUCCEEDED", ended_at=clock.now() - timedelta(hours=2))
    assert point_chunks.compact_ended_runs(now=clock.now()) == points
    assert curve(world) == (steps, pytest.approx(rewards))


def test_a_later_attempt_replaces_the_steps_that_it_repeats(world: World) -> None:
    ship(world.trainer, *(step(x, reward_mean=1.0) for x in range(1, 11)))
    second = second_attempt(world)
    ship(second, *(step(x, reward_mean=2.0) for x in range(8, 14)))
    ship(second, *(step(x, reward_mean=3.0) for x in range(12, 16)), file="main-1.jsonl")
    assert curve(world) == (list(range(1, 16)), [1.0] * 7 + [2.0] * 4 + [3.0] * 4)


def test_an_attempt_that_begins_within_a_bucket_shares_it(world: World) -> None:
    ship(world.trainer, *(step(x, reward_mean=0.0) for x in range(100)))
    ship(second_attempt(world), *(step(x, reward_mean=1.0) for x in range(101 - 50, 160)))
    steps, rewards = curve(world)
    assert len(steps) <= 40 and steps == sorted(set(steps)) and steps[-1] == 159
    assert rewards[0] == 0.0 and rewards[-1] == 1.0
    [shared] = [reward for reward in rewards if reward not in (0.0, 1.0)]
    assert shared == pytest.approx(1 / 4)  # steps 48, 49, 50 of the first, 51 of the second


def test_a_reward_that_is_not_finite_is_null_and_no_part_of_a_mean(world: World) -> None:
    ship(world.trainer, step(1, reward_mean=float("nan")), step(2, reward_mean=0.5))
    assert curve(world) == ([1, 2], [None, 0.5])


def test_runs_come_in_the_order_given_each_once_and_foreign_ones_are_left_out(
    world: World, read: Callable[..., Any]
) -> None:
    ship(world.trainer, step(1, reward_mean=0.25))
    quiet, foreign = another_run(world, "quiet"), build_world("foreign")
    ship(foreign.trainer, step(1, reward_mean=0.75))
    answer = read(f"{quiet.run.pk},run_unknown,{foreign.run.pk},{world.run.pk},{quiet.run.pk}")
    assert answer.status_code == 200, answer.content
    assert answer.json() == {
        "data": [
            {"run_id": quiet.run.pk, "step": [], "reward": []},
            {"run_id": world.run.pk, "step": [1], "reward": [0.25]},
        ]
    }
    assert "0.75" not in answer.content.decode()


@pytest.mark.parametrize(
    ("ids", "says"), [("", "one id or more"), (",", "one id or more"), (",".join("abc" * 34), "100 at most")]
)
def test_no_ids_and_too_many_are_refused_with_the_parameter(
    read: Callable[..., Any], ids: str, says: str
) -> None:
    answer = read(ids)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["pointer"] == "/ids" and says in error["message"]


def test_the_number_of_queries_does_not_depend_on_the_number_of_runs(world: World) -> None:
    worlds = [world, *(another_run(world, f"run {n}") for n in range(4))]
    for number, one in enumerate(worlds):  # of many lengths, so that every run has another bucket width
        ship(one.trainer, *(step(x, reward_mean=1.0) for x in range(30 + 200 * number)))

    def queries(ids: list[str]) -> int:
        with CaptureQueriesContext(connection) as seen:
            assert len(sparklines.rewards(world.caller, ids)) == len(ids)
        return len(seen)

    ids = [one.run.pk for one in worlds]
    assert queries(ids) == 5 and queries(ids[:2]) == 5


def test_the_sdk_reads_sparklines(alice: Any, oolong: Callable[..., Any]) -> None:
    run = alice.run()
    with SDK() as sdk:
        [found] = sdk.runs.sparklines([run["id"], "run_unknown"])
    assert (found.run_id, found.step, found.reward) == (run["id"], [], [])
