"""Liveness, readiness and metrics: open where they must be, silent about what they are asked through."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.test import Client

from control_plane.assets.storage.health import check_store
from control_plane.core.infra import health, locks
from tests.unit.control_plane.conftest import Person, SimulatedNode

SECRETS = ("hunter2", "only-for-tests", "postgresql://", "redis://")


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(health, "SECONDS", 60)  # a part that stands still for a moment is not away
    health.readiness.forget()
    yield
    health.readiness.forget()


@pytest.fixture
def all_well(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in health.CHECKS:
        monkeypatch.setitem(health.CHECKS, name, lambda: None)


def test_liveness_asks_nobody(client: Client) -> None:
    answer = client.get("/healthz")  # no database in this test
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_readiness_names_its_parts(client: Client, db: None, valkey_url: str) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 200, answer.content
    assert answer.json() == {"ready": True, "checks": {"database": "ok", "broker": "ok", "store": "ok"}}


def test_readiness_is_looked_up_once_a_second(
    client: Client, all_well: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address is open to everybody, and each look-up opens connections."""
    asked: list[float] = []
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("control_plane.core.infra.health.time", clock)
    monkeypatch.setitem(health.CHECKS, "store", lambda: asked.append(clock.now))
    for clock.now in (100.0, 100.9, 101.0, 101.5):
        assert client.get("/readyz").status_code == 200
    assert asked == [100.0, 101.0]


def test_a_store_that_cannot_be_written_is_not_ready(
    client: Client, all_well: None, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setitem(health.CHECKS, "store", check_store)
    blocked = settings.ENVIRONMENT.data_dir / "blocked"
    blocked.write_text("a file where a folder should be")
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, data_dir=blocked, storage_url="")
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["store"].startswith("the scratch folder cannot be written")


def test_a_broker_that_is_away_is_named_without_its_password(
    client: Client, all_well: None, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setitem(health.CHECKS, "broker", health.check_broker)
    settings.ENVIRONMENT = dataclasses.replace(
        settings.ENVIRONMENT, redis_url="redis://:hunter2@127.0.0.1:1/0"
    )
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["broker"] == "does not answer (ConnectionError)"
    assert not any(secret in answer.content.decode() for secret in SECRETS)


def test_a_database_that_is_away_is_named_without_its_password(
    client: Client, all_well: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(health.CHECKS, "database", health.check_database)
    away = {"host": "127.0.0.1", "port": 1, "user": "oolong", "password": "hunter2", "dbname": "x"}
    monkeypatch.setattr(health, "connect_parameters", lambda: away)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["database"] == "does not answer (OperationalError)"
    assert not any(secret in answer.content.decode() for secret in SECRETS)


@pytest.mark.usefixtures("db")
def test_a_migration_that_is_not_applied_is_not_ready(
    client: Client, all_well: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(health.CHECKS, "database", health.check_database)
    more = health.known_migrations() | {("runs", "9999_of_a_newer_version")}
    monkeypatch.setattr(health, "known_migrations", lambda: more)
    said = client.get("/readyz").json()["checks"]["database"]
    assert said == "1 migration(s) are not applied: run `manage.py migrate`"


def test_an_older_server_serves_a_newer_database(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an upgrade rolls, processes of the old version find migrations that they do not know."""
    fewer = frozenset(sorted(health.known_migrations())[:-1])
    monkeypatch.setattr(health, "known_migrations", lambda: fewer)
    health.check_database()


@pytest.fixture
def token(settings: Any) -> str:
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, metrics_token="of-prometheus")
    return "Bearer of-prometheus"


def test_metrics_are_for_who_knows_their_token(client: Client, db: None, token: str, alice: Person) -> None:
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/metrics", headers={"authorization": f"Bearer {alice.token}"}).status_code == 401
    assert client.post("/metrics", headers={"authorization": token}).status_code == 405
    answer = client.get("/metrics", headers={"authorization": token})
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain")


def test_without_a_token_there_are_no_metrics(client: Client, settings: Any) -> None:
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, metrics_token="")
    assert client.get("/metrics", headers={"authorization": "Bearer "}).status_code == 404


def test_metrics_tell_of_runs_slots_and_requests(
    client: Client,
    token: str,
    alice: Person,
    node: Callable[..., SimulatedNode],
    start: Callable[..., Any],
    tick: Callable[..., None],
) -> None:
    run = start(node(slots=4))
    alice.run(name="waits")
    tick()
    alice.see(run["id"])
    values = _values(client.get("/metrics", headers={"authorization": token}).content.decode())
    assert values['oolong_runs{status="RUNNING"}'] == 1
    assert values['oolong_slots{state="held"}'] + values['oolong_slots{state="free"}'] == 4
    assert values['oolong_nodes{status="READY"}'] == 1
    asked = 'oolong_http_request_duration_seconds_count{area="runs",method="GET",status="2xx"}'
    assert values[asked] >= 1
    assert "oolong_outbox_lag_bytes" in values
    assert values['oolong_webhook_deliveries{state="PENDING"}'] == 0
    text = "\n".join(values)
    assert run["id"] not in text, "an id would make a new series for every run"
    assert "sums" not in text


def test_a_tick_is_counted_for_all_workers(db: None, clock: Any) -> None:
    from control_plane.core.infra.locks import single_instance
    from control_plane.core.models import Tick

    def fails() -> None:
        raise ValueError("no")

    single_instance("of-this-test")(lambda: None)()
    with pytest.raises(ValueError):
        single_instance("of-this-test")(fails)()
    tick = Tick.objects.get(name="of-this-test")
    assert (tick.count, tick.failures) == (1, 1)
    assert tick.last_at == clock.now


def test_health_says_since_when_a_tick_has_not_run(
    client: Client, db: None, clock: Any, all_well: None
) -> None:
    from control_plane.core.infra.periodic_tasks import TICKS
    from control_plane.core.models import Tick

    assert client.get("/api/v1/health").json()["webhooks"] == "has not run yet"
    for name in TICKS.values():
        Tick.objects.create(name=name, last_at=clock.now)
    clock.forward(90)
    found = client.get("/api/v1/health").json()
    assert (found["scheduler"], found["webhooks"], found["store"]) == ("ok", "ok", "ok")
    clock.forward(1)
    assert client.get("/api/v1/health").json()["scheduler"].startswith("has not run since 20")


def test_a_tick_that_runs_elsewhere_is_left_out_here(db: None) -> None:
    from control_plane.core.infra.database import connect_parameters
    from control_plane.core.infra.locks import single_instance, tick_key

    done: list[int] = []
    with psycopg.connect(**connect_parameters(), autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [tick_key("of-this-test")])
        single_instance("of-this-test")(lambda: done.append(1))()
        other.execute("SELECT pg_advisory_unlock(%s)", [tick_key("of-this-test")])
    assert done == []
    single_instance("of-this-test")(lambda: done.append(1))()
    assert done == [1]
    assert connection.is_usable()


def test_no_two_uses_of_locks_share_a_number(db: None) -> None:
    """`plumless` and `buckeroo` have one CRC-32: a path of that name would have kept a tick from running."""
    from control_plane.core.infra.database import connect_parameters
    from control_plane.core.infra.locks import LockClass, lock_key, single_instance, transaction_lock

    names = ("", "plumless", "buckeroo", "place-jobs", "/api/v1/runs/run_1")
    numbers = {lock_key(of, name) for of in LockClass for name in names}
    assert len(numbers) == len(LockClass) * len(names)
    assert all(-(2**63) <= number < 2**63 for number in numbers)
    done: list[int] = []
    with psycopg.connect(**connect_parameters()) as other:
        for of in set(LockClass) - {LockClass.TICK}:
            other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key(of, "plumless")])
        single_instance("plumless")(lambda: done.append(1))()
        with transaction.atomic():
            transaction_lock(LockClass.BLOB, "buckeroo")
    assert done == [1]


def test_advisory_locks_are_taken_in_one_place() -> None:
    package = Path(locks.__file__).parents[2]
    takers = {
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if "pg_advisory" in (text := file.read_text()) or "pg_try_advisory" in text
    }
    assert takers == {"core/infra/locks.py"}


def _values(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}
