"""The embedded databases against kill -9, and the keeper against the death of its services and its own."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
import redis

from local_stack import postgres, valkey
from local_stack.files import read_json
from local_stack.keeper import FIRST_DELAY_SECONDS, Keeper
from local_stack.places import Places, places_of
from local_stack.services import CONTROL_PLANE, STORES, Service, always
from tests.support.ports import reserve_port
from tests.support.waiting import wait_until


@pytest.fixture
def places(checkout: Path) -> Iterator[Places]:
    """A clone of nothing in a folder that the services' user can enter."""
    with tempfile.TemporaryDirectory(prefix="oolong-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        root = folder / "clone"
        root.mkdir()
        (root / ".venv").symlink_to(checkout / ".venv")
        environ = {"OOLONG_HOME": str(folder / "home")}
        made = places_of(root, environ=environ, uid=os.geteuid(), user_home=folder)
        made.data.mkdir(parents=True)
        made.data.chmod(0o711)
        made.run.mkdir(parents=True)
        made.logs.mkdir(parents=True)
        yield made


@pytest.fixture
def cluster(places: Places) -> postgres.Cluster:
    return postgres.Cluster(
        bin=postgres.binaries(places.venv, shared=places.home),
        data=places.data / "postgres",
        port=reserve_port(),
        password="secret",
        run_as=postgres.service_user(),
    )


def _postgres_service(cluster: postgres.Cluster) -> Service:
    def before() -> None:
        cluster.initialise()
        cluster.forget_stale_lock()

    return Service(
        name="postgres",
        stage=STORES,
        argv=cluster.argv(),
        environment=cluster.environment(),
        directory=cluster.data,
        is_ready=cluster.is_ready,
        before_start=before,
        run_as=cluster.run_as,
        stop_signal=signal.SIGINT,
        grace_seconds=60.0,
    )


def _bring_up(places: Places, *services: Service) -> Keeper:
    keeper = Keeper(places, list(services), before_stage={})
    keeper._bring_up()
    return keeper


def _watch_until(keeper: Keeper, holds: Callable[[], bool]) -> None:
    def step() -> bool:
        keeper._watch()
        return holds()

    wait_until(step, "what the keeper was to do")


def _pid(places: Places, name: str) -> int:
    return int(read_json(places.run / f"{name}.json")["pid"])


def test_committed_rows_survive_kill_9_of_postgres_which_the_keeper_starts_again(places, cluster):
    keeper = _bring_up(places, _postgres_service(cluster))
    try:
        with psycopg.connect(cluster.url.removesuffix("oolong") + "postgres", autocommit=True) as connection:
            connection.execute("CREATE TABLE kept (n int)")
            connection.execute("INSERT INTO kept SELECT generate_series(1, 10000)")
        first = _pid(places, "postgres")
        os.kill(first, signal.SIGKILL)
        _watch_until(keeper, lambda: _pid(places, "postgres") != first and cluster.is_ready())
        with psycopg.connect(cluster.url.removesuffix("oolong") + "postgres") as connection:
            assert connection.execute("SELECT count(*) FROM kept").fetchone() == (10000,)
    finally:
        keeper._stop_all()
    assert not cluster.is_ready()


def test_postgres_refuses_a_wrong_password(places, cluster):
    keeper = _bring_up(places, _postgres_service(cluster))
    try:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(
                host="127.0.0.1", port=cluster.port, user="oolong", password="guess", dbname="postgres"
            )
    finally:
        keeper._stop_all()


def test_a_lock_file_that_names_a_stranger_does_not_keep_postgres_down(places, cluster):
    cluster.initialise()
    lock = cluster.data / "postmaster.pid"
    lock.write_text(f"{os.getpid()}\n{cluster.data}\n")
    cluster.forget_stale_lock()
    assert not lock.exists()


def test_an_interrupted_initdb_is_begun_again(places, cluster):
    cluster.data.mkdir()
    (cluster.data / "building").mkdir()
    (cluster.data / "building" / "half").write_text("x")
    assert cluster.initialise()
    assert (cluster.data / "PG_VERSION").exists()
    assert not cluster.initialise()


def test_the_password_is_in_no_argument_and_in_no_file_others_can_read(places, cluster):
    cluster.initialise()
    broker = _broker(places)
    broker.prepare()
    for word in (*cluster.argv(), *broker.argv()):
        assert "secret" not in word
    for path in (cluster.data, broker.data, broker.config_file):
        assert path.stat().st_mode & 0o077 == 0


def _broker(places: Places) -> valkey.Broker:
    return valkey.Broker(
        binary=valkey.binary(places.venv, shared=places.home),
        data=places.data / "valkey",
        port=reserve_port(),
        password="secret",
        run_as=postgres.service_user(),
    )


def test_what_valkey_was_told_survives_kill_9(places):
    broker = _broker(places)
    service = Service(
        name="valkey",
        stage=STORES,
        argv=broker.argv(),
        environment={},
        directory=broker.data,
        is_ready=broker.is_ready,
        before_start=broker.prepare,
        run_as=broker.run_as,
        grace_seconds=60.0,
    )
    keeper = _bring_up(places, service)
    try:
        with redis.Redis.from_url(broker.url) as client:
            client.config_set("appendfsync", "always")
            client.set("kept", "yes")
        first = _pid(places, "valkey")
        os.kill(first, signal.SIGKILL)
        _watch_until(keeper, lambda: _pid(places, "valkey") != first and broker.is_ready())
        with redis.Redis.from_url(broker.url) as client:
            assert client.get("kept") == b"yes"
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=broker.port).ping()
    finally:
        keeper._stop_all()


def _sleeper(
    places: Places, code: str = "import time; time.sleep(600)", grace_seconds: float = 60.0
) -> Service:
    return Service(
        name="web",
        stage=CONTROL_PLANE,
        argv=[sys.executable, "-c", code],
        environment={},
        directory=places.root,
        is_ready=always,
        grace_seconds=grace_seconds,
    )


def test_a_dead_service_is_started_again_and_later_each_time(places, monkeypatch):
    keeper = _bring_up(places, _sleeper(places))
    now = time.monotonic()
    try:
        pids = [_pid(places, "web")]
        with monkeypatch.context() as patched:
            patched.setattr("local_stack.keeper.time", SimpleNamespace(monotonic=lambda: now))
            for delay in (0.0, FIRST_DELAY_SECONDS, 2 * FIRST_DELAY_SECONDS):
                os.kill(pids[-1], signal.SIGKILL)
                keeper.kept[0].process.wait(timeout=60)
                keeper._watch()
                if delay:
                    now += delay - 0.01
                    keeper._watch()
                    assert _pid(places, "web") == pids[-1], f"not before {delay} s"
                    now += 0.02
                    keeper._watch()
                pids.append(_pid(places, "web"))
        assert len(set(pids)) == 4
    finally:
        keeper._stop_all()


def test_the_next_keeper_adopts_what_a_killed_one_left(places):
    first = _bring_up(places, _sleeper(places))
    pid = _pid(places, "web")
    second = _bring_up(places, _sleeper(places))
    assert _pid(places, "web") == pid
    second._stop_all()
    assert first.kept[0].process.wait(timeout=60) == -signal.SIGTERM


def test_a_service_with_another_command_line_is_replaced_not_adopted(places):
    first = _bring_up(places, _sleeper(places))
    pid = _pid(places, "web")
    second = _bring_up(places, _sleeper(places, code="import time; time.sleep(601)"))
    assert _pid(places, "web") != pid
    second._stop_all()
    assert first.kept[0].process.poll() is not None


def test_a_service_that_ignores_the_stop_signal_is_killed_after_its_grace(places):
    code = (
        "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "pathlib.Path('deaf').touch(); time.sleep(600)"
    )
    keeper = _bring_up(places, _sleeper(places, code=code, grace_seconds=1.0))
    wait_until((places.root / "deaf").exists, "it ignores the signal")
    keeper._stop_all()
    assert keeper.kept[0].process.wait(timeout=60) == -signal.SIGKILL


def test_the_servers_children_are_gone_after_a_stop(places, cluster):
    keeper = _bring_up(places, _postgres_service(cluster))
    keeper._stop_all()
    left = [path for path in Path("/proc").glob("[0-9]*/cwd") if _reads_as(path, cluster.data)]
    assert not left


def _reads_as(link: Path, target: Path) -> bool:
    try:
        return Path(os.readlink(link)) == target
    except OSError:
        return False
