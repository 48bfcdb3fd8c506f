"""The clock of ticks: at its own pace while something is under way, and rarely while nothing is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery.beat import PersistentScheduler, ScheduleEntry
from celery.schedules import schedule
from django.db import connection
from django.utils import timezone

from control_plane import beat
from control_plane.accounts.audit.audit_log import append_to_chain
from control_plane.beat import IDLE_SECONDS, IDLE_SECONDS_OF, Scheduler, work_is_under_way
from control_plane.celery import app
from control_plane.core.infra import activity
from control_plane.core.infra.activity import CHANGED_KEY, ChangeMark, changed_lately
from control_plane.core.infra.locks import single_instance
from control_plane.fleet.liveness import MAX_CHECK_GAP
from control_plane.fleet.models import Node
from tests.unit.control_plane.conftest import SimulatedNode


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.busy, self.sent = 1000.0, True, list[str]()
        monkeypatch.setattr(beat, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(beat, "is_busy", lambda: self.busy)
        monkeypatch.setattr(
            PersistentScheduler, "apply_entry", lambda _, entry, producer=None: self.sent.append(entry.name)
        )
        self.scheduler = Scheduler(app, lazy=True)

    def run(self, name: str, *, seconds: int) -> int:
        """How many of the ticks of so many seconds, one a second, are sent."""
        before = len(self.sent)
        for _ in range(seconds):
            self.now += 1.0
            self.scheduler.apply_entry(SimpleNamespace(name=name))
        return len(self.sent) - before


def test_every_tick_is_sent_while_there_is_work_and_few_while_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    assert clock.run("place-jobs", seconds=20) == 20
    clock.busy = False
    assert clock.run("place-jobs", seconds=90) == 3
    assert clock.run("sweep-leases", seconds=60) == 6
    clock.busy = True
    assert clock.run("place-jobs", seconds=5) == 5, "from the very next second on"


def test_the_clock_sleeps_until_an_entry_is_due_and_sends_it_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery's own wakes up 10 ms before, several times a second, and computes until the entry is due."""
    sent: list[str] = []
    monkeypatch.setattr(Scheduler, "apply_entry", lambda _, entry, producer=None: sent.append(entry.name))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    entries = {
        name: ScheduleEntry(
            name,
            "task",
            schedule=schedule(timedelta(seconds=1), nowfun=lambda: now),
            last_run_at=now,
            app=app,
        )
        for name in ("place-jobs", "advance-runs")
    }
    monkeypatch.setattr(ScheduleEntry, "default_now", lambda _: now)
    monkeypatch.setattr(Scheduler, "schedule", entries)
    monkeypatch.setattr(Scheduler, "producer", None)  # of a broker, which nothing is sent to
    scheduler = Scheduler(app, lazy=True)
    pause = scheduler.tick()
    assert pause == pytest.approx(1.0) and not sent
    now += timedelta(seconds=pause)
    assert scheduler.tick() == scheduler.tick() == 0 and set(sent) == set(entries)
    assert scheduler.tick() == pytest.approx(1.0)


def test_silence_is_still_judged_in_time() -> None:
    """And the alarm of a clock that stands, after 60 s (docs/how-to/operate.md), is not a false one."""
    assert IDLE_SECONDS_OF["sweep-leases"] < MAX_CHECK_GAP.total_seconds() - 2
    assert IDLE_SECONDS < 60 and set(IDLE_SECONDS_OF) <= set(app.conf.beat_schedule)
    assert app.conf.beat_scheduler == "control_plane.beat:Scheduler"


def test_what_is_under_way_is_work(
    alice: Any, node: Callable[..., SimulatedNode], start: Callable[..., Any]
) -> None:
    where = node()
    Node.objects.update(last_seen_at=timezone.now())
    while append_to_chain():
        pass
    assert not work_is_under_way()
    start(where)
    assert work_is_under_way(), "an attempt lives"


def test_a_node_that_falls_silent_is_work_and_one_that_is_long_gone_is_not(
    alice: Any, node: Callable[..., SimulatedNode]
) -> None:
    node()
    while append_to_chain():
        pass
    for silence, liveness, busy in ((1, "READY", False), (40, "READY", True), (40, "UNRESPONSIVE", False),
                                    (1, "UNRESPONSIVE", True), (9999, "LOST", False)):  # fmt: skip
        Node.objects.update(last_seen_at=timezone.now() - timedelta(seconds=silence), liveness=liveness)
        assert work_is_under_way() is busy, (silence, liveness)


def test_an_entry_of_the_audit_log_is_work_until_it_is_sealed(alice: Any) -> None:
    while append_to_chain():
        pass
    assert not work_is_under_way()
    alice.post("/tokens", {"name": "ci", "scopes": ["runs:read"]})
    assert work_is_under_way()


@pytest.mark.parametrize(
    ("method", "path", "status", "marks"),
    [("POST", "/api/v1/runs", 201, True), ("DELETE", "/api/v1/runs/run_1", 204, True),
     ("GET", "/api/v1/runs", 200, False),
     ("POST", "/api/v1/runs", 422, False), ("POST", "/api/v1/agent/heartbeat", 200, False),
     ("POST", "/api/v1/agent/enroll", 201, True), ("POST", "/api/v1/agent/imports/i/complete", 200, True)],
)  # fmt: skip
async def test_a_change_through_the_api_wakes_the_clock(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch, method: str, path: str, status: int, marks: bool
) -> None:
    monkeypatch.setattr(activity, "CALL_SECONDS", 60.0)
    redis.Redis.from_url(valkey_url).delete(CHANGED_KEY)
    client = redis.asyncio.Redis.from_url(valkey_url)
    await ChangeMark(client).note(method=method, path=path, status=status)
    await client.aclose()
    assert changed_lately(valkey_url) is marks


def test_without_valkey_or_database_every_tick_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert changed_lately("redis://127.0.0.1:1/0")


@pytest.mark.django_db(transaction=True)
def test_a_tick_survives_that_the_server_ended_its_connection() -> None:
    """A worker keeps its connection; only once in a thousand ticks would it make another."""
    pids = []

    @single_instance("a test of connections")
    def tick() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pids.append(cursor.fetchone()[0])

    tick()
    tick()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        own = cursor.fetchone()[0]
    assert pids == [own, own], "the connection is kept"
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [own])
    other.close()
    tick()
    assert len(pids) == 3 and pids[2] != own
