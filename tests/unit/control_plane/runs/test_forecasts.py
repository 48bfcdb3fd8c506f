"""When runs start and end, as people see it: on the run, in the queue and in the explanation of a wait."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from control_plane.runs.forecasts import update_forecasts
from control_plane.runs.models import Run, RunForecast
from oolong.contracts.lifecycle import RunStatus
from tests.unit.control_plane.conftest import Clock


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def train(run: Any, step: int) -> None:
    Run.objects.filter(pk=run["id"]).update(train_step=step)


@pytest.fixture
def advance(clock: Clock) -> Any:
    """Steps of ten seconds, each seen by the periodic task."""

    def steps(run: Any, first: int, last: int) -> None:
        for step in range(first, last + 1):
            train(run, step)
            update_forecasts(now=clock.now)
            if step < last:
                clock.forward(10)

    return steps


def past_run(alice: Any, seconds: float, **changes: Any) -> None:
    """A run that succeeded after so many seconds."""
    made = alice.run(**changes)
    run = Run.objects.get(pk=made["id"])
    run.status, run.attempt_number, run.train_step = RunStatus.SUCCEEDED, 1, run.total_train_steps
    run.started_at, run.ended_at = run.created_at, run.created_at + timedelta(seconds=seconds)
    run.save()


def test_a_run_that_trains_ends_by_its_own_pace_and_the_run_behind_it_starts_then(
    alice: Any, node: Any, start: Any, tick: Any, clock: Clock, advance: Any
) -> None:
    run = start(node(slots=2))
    waits = alice.run(name="waits")
    tick()
    advance(run, 1, 6)
    end = alice.see(run["id"])["end"]
    assert end["source"] == "progress" and end["message"] == "its pace over 6 of 60 steps"
    assert moment(end["p50"]) == clock.now + timedelta(seconds=540) == moment(end["p90"])
    found = alice.see(waits["id"])
    assert abs(moment(found["start"]["p50"]) - moment(end["p50"])) < timedelta(seconds=1)
    assert alice.get("/pool").json()["queue"][0]["start"] == found["start"]
    asked = alice.get(f"/runs/{waits['id']}/wait").json()
    assert asked["start"] == found["start"]


def test_nothing_known_is_said_as_unknown(alice: Any, node: Any, start: Any, tick: Any, clock: Clock) -> None:
    run = start(node(slots=2))
    waits = alice.run(name="waits")
    assert alice.see(run["id"])["end"]["message"] == "not computed yet"
    update_forecasts(now=clock.now)
    end, begins = alice.see(run["id"])["end"], alice.see(waits["id"])["start"]
    assert (end["p50"], end["p90"], end["source"]) == (None, None, "unknown")
    assert (begins["p50"], begins["p90"]) == (None, None)
    assert begins["message"] == "it waits for runs whose end is unknown"


def test_the_wall_time_limit_is_an_upper_bound(alice: Any, node: Any, start: Any, clock: Clock) -> None:
    run = start(node(slots=2), budget={"max_wall_seconds": 3600})
    waits = alice.run(name="waits")
    update_forecasts(now=clock.now)
    seen = alice.see(run["id"])
    assert (seen["end"]["p50"], seen["end"]["source"]) == (None, "wall_limit")
    assert moment(seen["end"]["p90"]) == moment(seen["started_at"]) + timedelta(hours=1)
    begins = alice.see(waits["id"])["start"]
    assert begins["p50"] is None and begins["p90"] == seen["end"]["p90"]


def test_runs_of_the_project_like_it_predict_a_run_that_has_no_pace_yet(
    alice: Any, node: Any, start: Any, clock: Clock
) -> None:
    for seconds in (600, 600, 660, 720, 1200):
        past_run(alice, seconds)
    past_run(alice, 9999, rollout={"group_size": 4})  # another shape
    run = start(node(slots=2))
    update_forecasts(now=clock.now)
    end = alice.see(run["id"])["end"]
    assert (end["source"], end["message"]) == ("like_runs", "5 runs of the project like it")
    assert moment(end["p50"]) == clock.now + timedelta(seconds=660)
    assert moment(end["p90"]) > moment(end["p50"])


def test_other_runs_of_the_kind_in_the_pool_predict_what_they_outlasted(
    alice: Any, node: Any, start: Any, clock: Clock
) -> None:
    for seconds in (100, 500, 600, 700, 800, 900):
        past_run(alice, seconds, rollout={"group_size": 4})
    run = start(node(slots=2))
    clock.forward(300)
    update_forecasts(now=clock.now)
    end = alice.see(run["id"])["end"]
    assert (end["source"], end["message"]) == (
        "pool_history",
        "5 runs of kind rl in pool default that took longer so far",
    )
    elapsed = clock.now - moment(alice.see(run["id"])["started_at"])
    assert moment(end["p50"]) == clock.now + timedelta(seconds=700) - elapsed


def test_an_evaluation_ends_by_its_progress_and_a_new_attempt_starts_over(
    alice: Any, node: Any, start: Any, clock: Clock
) -> None:
    run = start(node(slots=2))
    Run.objects.filter(pk=run["id"]).update(total_train_steps=0)
    for done in range(0, 50, 10):
        progress = {"phase": "evaluate", "done": done, "total": 100, "message": ""}
        Run.objects.filter(pk=run["id"]).update(progress=progress)
        update_forecasts(now=clock.forward(10))
    end = alice.see(run["id"])["end"]
    assert end["message"] == "its pace over 40 of 100 samples"
    assert moment(end["p50"]) == clock.now + timedelta(seconds=60)
    Run.objects.filter(pk=run["id"]).update(attempt_number=2)
    update_forecasts(now=clock.forward(10))
    assert RunForecast.objects.get(pk=run["id"]).samples == [[clock.now.timestamp(), 40]]


def test_a_run_that_has_ended_or_is_paused_has_no_forecast(
    alice: Any, node: Any, start: Any, clock: Clock
) -> None:
    run = start(node(slots=2))
    update_forecasts(now=clock.now)
    assert RunForecast.objects.filter(pk=run["id"]).exists()
    Run.objects.filter(pk=run["id"]).update(status=RunStatus.PAUSED)
    update_forecasts(now=clock.now)
    assert not RunForecast.objects.filter(pk=run["id"]).exists()
    assert alice.see(run["id"])["end"] is None and alice.see(run["id"])["start"] is None


@pytest.mark.parametrize(("seconds", "passes"), [(100, True), (900, False)])
def test_a_run_passes_a_wider_one_only_if_it_is_predicted_to_end_before_that_one_starts(
    alice: Any, node: Any, start: Any, tick: Any, advance: Any, seconds: float, passes: bool
) -> None:
    for _ in range(5):
        past_run(alice, seconds)
    run = start(node(slots=4))  # holds 2 of 4 slots for another 540 s
    wide, small = alice.run(name="wide", rollout={"engines": 3}), alice.run(name="small")
    advance(run, 1, 6)
    tick()
    assert alice.see(small["id"])["status"] == ("STARTING" if passes else "QUEUED")
    assert alice.see(wide["id"])["status"] == "QUEUED"
    promised = Run.objects.get(pk=wide["id"]).promised_start_at
    assert promised is not None
    assert abs(promised - moment(alice.see(run["id"])["end"]["p50"])) < timedelta(seconds=1)


def test_the_command_shows_when_runs_start(
    alice: Any, node: Any, start: Any, tick: Any, advance: Any, oolong: Any
) -> None:
    run = start(node(slots=2))
    waits = alice.run(name="waits")
    tick()
    advance(run, 1, 6)
    done = oolong("run", "why", waits["id"])
    assert done.code == 0, done.err
    assert "starts" in done.out and "about 2026-01-01 12:09 UTC" in done.out
    assert "about 2026-01-01 12:09 UTC" in oolong("pool", "queue").out
