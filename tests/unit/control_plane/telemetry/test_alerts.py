"""Alerts are opened once, closed when they no longer hold, told as events, and belong to the run's project."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from control_plane.core.infra import clock
from control_plane.runs.models import Attempt, Run, RunEvent
from control_plane.telemetry.alerts import alerts
from control_plane.telemetry.ingest import outbox
from control_plane.telemetry.models import Alert
from oolong.contracts.lifecycle import AttemptStatus, RunStatus
from oolong.contracts.telemetry import Note, Points
from tests.unit.control_plane.telemetry.world import World, build_world, encode

SPEC = {"name": "a", "model": {"base_model": "b"}, "dataset": {"version": "c"}, "staleness": {"max": 4}}


@pytest.fixture
def world(db: None) -> World:
    world = build_world()
    Run.objects.filter(pk=world.run.pk).update(spec=SPEC)
    return world


def ship_steps(world: World, first: int, count: int, offset: int = 0, **values: float) -> int:
    now = clock.now().timestamp()
    named = {name.replace("__", "/"): value for name, value in values.items()}
    lines = [Points(at=now, axis="step", x=x, values=named) for x in range(first, first + count)]
    body = encode(*lines)
    return outbox.ingest_outbox(world.trainer.pk, "main-0.jsonl", offset=offset, body=body)


def told(world: World) -> list[str]:
    return list(
        RunEvent.objects.filter(run=world.run, kind="alert").order_by("pk").values_list("message", flat=True)
    )


def test_an_alert_opens_once_and_closes_when_it_no_longer_holds(world: World) -> None:
    now = clock.now()
    offset = ship_steps(world, 1, 12, importance_ratio__mean=3.0, time__step_seconds=1.0)
    alerts.watch_runs(now=now)
    alerts.watch_runs(now=now + timedelta(seconds=10))
    alert = Alert.objects.get()
    assert (alert.rule, alert.train_step, alert.closed_at) == ("importance_ratio_bias", 12, None)
    assert "mean w is 3" in alert.message
    ship_steps(world, 13, 6, offset, importance_ratio__mean=1.0, time__step_seconds=1.0)
    alerts.watch_runs(now=now + timedelta(seconds=20))
    alert.refresh_from_db()
    assert alert.closed_at == now + timedelta(seconds=20)
    assert [message.split(":")[0] for message in told(world)] == ["alert", "over"]


def test_a_full_buffer_is_measured_by_the_bound_that_holds_now(world: World) -> None:
    spec = {**SPEC, "trainer": {"groups_per_step": 8}}
    Run.objects.filter(pk=world.run.pk).update(spec=spec)
    now = clock.now()
    lines = [
        Points(
            at=now.timestamp(),
            axis="time",
            x=5 * n,
            values={"buffer/groups": 16.0, "ledger/trained_groups": 8.0 * n},
        )
        for n in range(40)
    ]
    outbox.ingest_outbox(world.trainer.pk, "main-0.jsonl", offset=0, body=encode(*lines))
    alerts.watch_runs(now=now)
    assert not Alert.objects.exists(), "four versions ahead hold 32 groups"
    Run.objects.filter(pk=world.run.pk).update(live={"revision": 1, "max_staleness": 2})
    alerts.watch_runs(now=now)
    assert [alert.rule for alert in Alert.objects.all()] == ["buffer_full"]


def test_a_run_that_has_ended_has_no_open_alert(world: World) -> None:
    ship_steps(world, 1, 12, importance_ratio__mean=3.0)
    alerts.watch_runs(now=clock.now())
    Run.objects.filter(pk=world.run.pk).update(status=RunStatus.STOPPED)
    alerts.watch_runs(now=clock.now())
    assert Alert.objects.filter(closed_at=None).count() == 0


def test_a_stall_is_seen_by_the_clock_alone(world: World) -> None:
    ship_steps(world, 1, 3, time__step_seconds=1.0)
    alerts.watch_runs(now=clock.now() + timedelta(minutes=11))
    assert [alert.rule for alert in Alert.objects.all()] == ["stalled"]


def new_attempt(world: World, **boot: Any) -> Attempt:
    """The run's second attempt, under way since now, without a train step of its own."""
    Attempt.objects.filter(run=world.run).update(status=AttemptStatus.ENDED)
    first = Attempt.objects.get(run=world.run)
    Run.objects.filter(pk=world.run.pk).update(attempt_number=2)
    return Attempt.objects.create(
        run=first.run,
        number=2,
        epoch=2,
        node=first.node,
        token="t",
        ports={},
        created_at=clock.now(),
        boot=boot,
    )


def open_rules() -> set[str]:
    return set(Alert.objects.filter(closed_at=None).values_list("rule", flat=True))


def test_a_new_attempt_that_never_gets_to_a_step_is_stalled_by_the_runs_own_pace(world: World) -> None:
    ship_steps(world, 1, 3, time__step_seconds=400.0)
    began = clock.now()
    new_attempt(world, milestones={"trainer_ready": 1.0, "first_rollout": began.timestamp()})
    alerts.watch_runs(now=began + timedelta(minutes=32))
    assert open_rules() == set(), "five steps of 400 s have not passed"
    alerts.watch_runs(now=began + timedelta(minutes=34))
    assert open_rules() == {"stalled"}
    assert "usually one in 400 s" in Alert.objects.get().message


def test_a_boot_that_takes_long_says_at_which_stage_it_is(world: World) -> None:
    new_attempt(world)
    Run.objects.filter(pk=world.run.pk).update(status=RunStatus.STARTING)
    alerts.watch_runs(now=clock.now() + timedelta(minutes=11))
    assert open_rules() == {"boot_slow"}
    assert "still: node accepts the run" in Alert.objects.get().message


@pytest.mark.parametrize(
    ("metric", "rule"),
    [
        ("gate/stalled_seconds", "gate_closed"),
        ("buffer/batch_unclaimed_seconds", "batch_unclaimed"),
        ("weight_sync/unloaded_seconds", "weights_unloaded"),
    ],
)
def test_a_standstill_opens_a_critical_alert_and_degrades_the_run_until_it_is_over(
    world: World, metric: str, rule: str
) -> None:
    now = clock.now()

    def ship(x: int, seconds: float, offset: int) -> int:
        line = Points(at=now.timestamp(), axis="time", x=x, values={metric: seconds})
        return outbox.ingest_outbox(world.trainer.pk, "main-0.jsonl", offset=offset, body=encode(line))

    offset = ship(5, 400.0, 0)
    alerts.watch_runs(now=now)
    world.run.refresh_from_db()
    assert (open_rules(), world.run.conditions) == ({rule}, ["DEGRADED"])
    ship(10, 0.0, offset)
    alerts.watch_runs(now=now)
    world.run.refresh_from_db()
    assert (open_rules(), world.run.conditions) == (set(), [])


def test_engines_that_fail_to_boot_degrade_the_run_until_one_serves(world: World) -> None:
    def ship(kind: str, message: str, offset: int) -> int:
        line = Note(at=clock.now().timestamp(), kind=kind, message=message)
        return outbox.ingest_outbox(world.trainer.pk, "main-0.jsonl", offset=offset, body=encode(line))

    log = "\n".join(f"loading shard {number}" for number in range(100))  # longer than an alert's message
    offset = ship(
        "engine_boot_failed", f"no answer within 300 s. The end of engine.log:\n{log}\nout of memory", 0
    )
    alerts.watch_runs(now=clock.now())
    alert = Alert.objects.get()
    assert alert.rule == "engine_boot" and alert.message.endswith("out of memory")
    assert "no answer within 300 s" in alert.message and len(alert.message) <= 400
    assert alert.message.startswith(f"{world.trainer.name}: ")
    assert Run.objects.get(pk=world.run.pk).conditions == ["DEGRADED"]
    ship("engine_serves", "the engine serves", offset)
    alerts.watch_runs(now=clock.now())
    assert open_rules() == set()
    assert Run.objects.get(pk=world.run.pk).conditions == []


def test_the_api_shows_them_with_advice_to_the_project_only(world: World) -> None:
    ship_steps(world, 1, 12, importance_ratio__mean=3.0)
    alerts.watch_runs(now=clock.now())

    def get(token: str, query: str = "") -> Any:
        return Client().get(
            f"/api/v1/runs/{world.run.pk}/alerts{query}", headers={"authorization": f"Bearer {token}"}
        )

    (shown,) = get(world.token(), "?open=true").json()["data"]
    assert (shown["rule"], shown["severity"], shown["closed_at"]) == (
        "importance_ratio_bias",
        "warning",
        None,
    )
    assert "max staleness" in shown["advice"]
    assert get(build_world("two").token()).status_code == 404


def test_a_run_that_ended_since_it_was_listed_gets_no_alert(world: World) -> None:
    ship_steps(world, 1, 12, importance_ratio__mean=3.0)
    run = Run.objects.get(pk=world.run.pk)
    run.status = RunStatus.STOPPED
    alerts.watch_run(run, now=clock.now())
    assert not Alert.objects.exists()
