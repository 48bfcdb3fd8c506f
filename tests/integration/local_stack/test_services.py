"""The embedded databases survive kill -9; the supervisor restarts and adopts services."""

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
from local_stack.paths import Paths, resolve_paths
from local_stack.services import CONTROL_PLANE, STORES, Service, always_ready
from local_stack.supervisor import FIRST_RESTART_DELAY_SECONDS, Supervisor
from tests.support.ports import reserve_port
from tests.support.waiting import wait_until


@pytest.fixture
def paths(checkout: Path) -> Iterator[Paths]:
    """Paths of an empty clone in a folder that the service user can traverse."""
    with tempfile.TemporaryDirectory(prefix="oolong-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        root = folder / "clone"
        root.mkdir()
        (root / ".venv").symlink_to(checkout / ".venv")
        environ = {"OOLONG_HOME": str(folder / "home")}
        made = resolve_paths(root, environ=environ, uid=os.geteuid(), user_home=folder)
        made.data.mkdir(parents=True)
        made.data.chmod(0o711)
        made.run.mkdir(parents=True)
        made.logs.mkdir(parents=True)
        yield made


@pytest.fixture
def cluster(paths: Paths) -> postgres.Cluster:
    return postgres.Cluster(
        bin=postgres.binaries(paths.venv, shared=paths.home),
        data=paths.data / "postgres",
        port=reserve_port(),
        password="secret",
        run_as=postgres.service_user(),
    )


def _postgres_service(cluster: postgres.Cluster) -> Service:
    def before() -> None:
        cluster.initialize()
        cluster.remove_stale_lock()

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


def _start_all(paths: Paths, *services: Service) -> Supervisor:
    supervisor = Supervisor(paths, list(services), before_stage={})
    supervisor._start_all()
    return supervisor


def _watch_until(supervisor: Supervisor, holds: Callable[[], bool]) -> None:
    def step() -> bool:
        supervisor._restart_dead()
        return holds()

    wait_until(step, "the supervisor restarted the service")


def _pid(paths: Paths, name: str) -> int:
    return int(read_json(paths.run / f"{name}.json")["pid"])


def test_committed_rows_survive_kill_9_and_the_supervisor_restarts_postgres(paths, cluster):
    supervisor = _start_all(paths, _postgres_service(cluster))
    try:
        with psycopg.connect(cluster.url.removesuffix("oolong") + "postgres", autocommit=True) as connection:
            connection.execute("CREATE TABLE kept (n int)")
            connection.execute("INSERT INTO kept SELECT generate_series(1, 10000)")
        first = _pid(paths, "postgres")
        os.kill(first, signal.SIGKILL)
        _watch_until(supervisor, lambda: _pid(paths, "postgres") != first and cluster.is_ready())
        with psycopg.connect(cluster.url.removesuffix("oolong") + "postgres") as connection:
            assert connection.execute("SELECT count(*) FROM kept").fetchone() == (10000,)
    finally:
        supervisor._stop_all()
    assert not cluster.is_ready()


def test_postgres_rejects_a_wrong_password(paths, cluster):
    supervisor = _start_all(paths, _postgres_service(cluster))
    try:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(
                host="127.0.0.1", port=cluster.port, user="oolong", password="guess", dbname="postgres"
            )
    finally:
        supervisor._stop_all()


def test_stale_postmaster_lock_is_removed(paths, cluster):
    cluster.initialize()
    lock = cluster.data / "postmaster.pid"
    lock.write_text(f"{os.getpid()}\n{cluster.data}\n")
    cluster.remove_stale_lock()
    assert not lock.exists()


def test_interrupted_initdb_is_repeated(paths, cluster):
    cluster.data.mkdir()
    (cluster.data / "building").mkdir()
    (cluster.data / "building" / "half").write_text("x")
    assert cluster.initialize()
    assert (cluster.data / "PG_VERSION").exists()
    assert not cluster.initialize()


def test_password_is_in_no_argument_and_no_file_readable_by_others(paths, cluster):
    cluster.initialize()
    broker = _broker(paths)
    broker.prepare()
    for word in (*cluster.argv(), *broker.argv()):
        assert "secret" not in word
    for path in (cluster.data, broker.data, broker.config_file):
        assert path.stat().st_mode & 0o077 == 0


def _broker(paths: Paths) -> valkey.Broker:
    return valkey.Broker(
        binary=valkey.binary(paths.venv, shared=paths.home),
        data=paths.data / "valkey",
        port=reserve_port(),
        password="secret",
        run_as=postgres.service_user(),
    )


def test_valkey_data_survives_kill_9(paths):
    broker = _broker(paths)
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
    supervisor = _start_all(paths, service)
    try:
        with redis.Redis.from_url(broker.url) as client:
            client.config_set("appendfsync", "always")
            client.set("kept", "yes")
        first = _pid(paths, "valkey")
        os.kill(first, signal.SIGKILL)
        _watch_until(supervisor, lambda: _pid(paths, "valkey") != first and broker.is_ready())
        with redis.Redis.from_url(broker.url) as client:
            assert client.get("kept") == b"yes"
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=broker.port).ping()
    finally:
        supervisor._stop_all()


def _sleeper(
    paths: Paths, code: str = "import time; time.sleep(600)", grace_seconds: float = 60.0
) -> Service:
    return Service(
        name="web",
        stage=CONTROL_PLANE,
        argv=[sys.executable, "-c", code],
        environment={},
        directory=paths.root,
        is_ready=always_ready,
        grace_seconds=grace_seconds,
    )


def test_dead_service_is_restarted_with_backoff(paths, monkeypatch):
    supervisor = _start_all(paths, _sleeper(paths))
    now = time.monotonic()
    try:
        pids = [_pid(paths, "web")]
        with monkeypatch.context() as patched:
            patched.setattr("local_stack.supervisor.time", SimpleNamespace(monotonic=lambda: now))
            for delay in (0.0, FIRST_RESTART_DELAY_SECONDS, 2 * FIRST_RESTART_DELAY_SECONDS):
                os.kill(pids[-1], signal.SIGKILL)
                supervisor.processes[0].popen.wait(timeout=60)
                supervisor._restart_dead()
                if delay:
                    now += delay - 0.01
                    supervisor._restart_dead()
                    assert _pid(paths, "web") == pids[-1], f"not before {delay} s"
                    now += 0.02
                    supervisor._restart_dead()
                pids.append(_pid(paths, "web"))
        assert len(set(pids)) == 4
    finally:
        supervisor._stop_all()


def test_next_supervisor_adopts_services_of_a_killed_one(paths):
    first = _start_all(paths, _sleeper(paths))
    pid = _pid(paths, "web")
    second = _start_all(paths, _sleeper(paths))
    assert _pid(paths, "web") == pid
    second._stop_all()
    assert first.processes[0].popen.wait(timeout=60) == -signal.SIGTERM


def test_service_with_another_command_line_is_replaced(paths):
    first = _start_all(paths, _sleeper(paths))
    pid = _pid(paths, "web")
    second = _start_all(paths, _sleeper(paths, code="import time; time.sleep(601)"))
    assert _pid(paths, "web") != pid
    second._stop_all()
    assert first.processes[0].popen.poll() is not None


def test_service_that_ignores_the_stop_signal_is_killed_after_the_grace_period(paths):
    code = (
        "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "pathlib.Path('deaf').touch(); time.sleep(600)"
    )
    supervisor = _start_all(paths, _sleeper(paths, code=code, grace_seconds=1.0))
    wait_until((paths.root / "deaf").exists, "it ignores the signal")
    supervisor._stop_all()
    assert supervisor.processes[0].popen.wait(timeout=60) == -signal.SIGKILL


def test_server_children_exit_after_a_stop(paths, cluster):
    supervisor = _start_all(paths, _postgres_service(cluster))
    supervisor._stop_all()
    left = [path for path in Path("/proc").glob("[0-9]*/cwd") if _reads_as(path, cluster.data)]
    assert not left


def _reads_as(link: Path, target: Path) -> bool:
    try:
        return Path(os.readlink(link)) == target
    except OSError:
        return False
