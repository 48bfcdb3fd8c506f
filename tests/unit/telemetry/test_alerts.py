"""Alerts are opened once, closed when they no longer hold, told as events, and belong to the run's project."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from control_plane.common import clock
from control_plane.runs.models import Run, RunEvent
from control_plane.telemetry import alerts, services
from control_plane.telemetry.models import Alert
from oolong.contracts.lifecycle import RunStatus
from oolong.contracts.telemetry import Points
from tests.unit.telemetry.world import World, build_world, encode

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
    return services.receive_outbox(world.trainer.pk, "main-0.jsonl", offset=offset, body=body)


def told(world: World) -> list[str]:
    return list(
        RunEvent.objects.filter(run=world.run, kind="alert").order_by("pk").values_list("message", flat=True)
    )


def test_an_alert_opens_once_and_closes_when_it_no_longer_holds(world: World) -> None:
    now = clock.now()
    offset = ship_steps(world, 1, 12, weight__mean=3.0, time__step_seconds=1.0)
    alerts.watch_runs(now=now)
    alerts.watch_runs(now=now + timedelta(seconds=10))
    alert = Alert.objects.get()
    assert (alert.rule, alert.train_step, alert.closed_at) == ("weight_off", 12, None)
    assert "mean w is 3" in alert.message
    ship_steps(world, 13, 6, offset, weight__mean=1.0, time__step_seconds=1.0)
    alerts.watch_runs(now=now + timedelta(seconds=20))
    alert.refresh_from_db()
    assert alert.closed_at == now + timedelta(seconds=20)
    assert [message.split(":")[0] for message in told(world)] == ["alert", "over"]


def test_a_full_buffer_is_measured_by_the_bound_that_holds_now(world: World) -> None:
    spec = {**SPEC, "trainer": {"groups_per_step": 8}}
    Run.objects.filter(pk=world.run.pk).update(spec=spec)
    now = clock.now()
    lines = [
        Points(at=now.timestamp(), axis="time", x=5 * n, values={"buffer/groups": 16.0}) for n in range(40)
    ]
    services.receive_outbox(world.trainer.pk, "main-0.jsonl", offset=0, body=encode(*lines))
    alerts.watch_runs(now=now)
    assert not Alert.objects.exists(), "four versions ahead hold 32 groups"
    Run.objects.filter(pk=world.run.pk).update(live={"revision": 1, "max_staleness": 2})
    alerts.watch_runs(now=now)
    assert [alert.rule for alert in Alert.objects.all()] == ["buffer_full"]


def test_a_run_that_has_ended_has_no_open_alert(world: World) -> None:
    ship_steps(world, 1, 12, weight__mean=3.0)
    alerts.watch_runs(now=clock.now())
    Run.objects.filter(pk=world.run.pk).update(status=RunStatus.STOPPED)
    alerts.watch_runs(now=clock.now())
    assert Alert.objects.filter(closed_at=None).count() == 0


def test_a_stall_is_seen_by_the_clock_alone(world: World) -> None:
    ship_steps(world, 1, 3, time__step_seconds=1.0)
    alerts.watch_runs(now=clock.now() + timedelta(minutes=11))
    assert [alert.rule for alert in Alert.objects.all()] == ["stalled"]


def test_the_api_shows_them_with_advice_to_the_project_only(world: World) -> None:
    ship_steps(world, 1, 12, weight__mean=3.0)
    alerts.watch_runs(now=clock.now())

    def get(token: str, query: str = "") -> Any:
        return Client().get(
            f"/api/v1/runs/{world.run.pk}/alerts{query}", headers={"authorization": f"Bearer {token}"}
        )

    (shown,) = get(world.token(), "?open=true").json()["data"]
    assert (shown["rule"], shown["severity"], shown["closed_at"]) == ("weight_off", "warning", None)
    assert "max staleness" in shown["advice"]
    assert get(build_world("two").token()).status_code == 404


def test_a_run_that_ended_since_it_was_listed_gets_no_alert(world: World) -> None:
    ship_steps(world, 1, 12, weight__mean=3.0)
    run = Run.objects.get(pk=world.run.pk)
    run.status = RunStatus.STOPPED
    alerts.watch_run(run, now=clock.now())
    assert not Alert.objects.exists()
