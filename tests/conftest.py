"""What all tests share: a PostgreSQL and a Valkey of their own, started at first use, gone with the session.

The servers are the embedded ones, in a temporary folder, on ports of their own, without fsync; the tables of
PostgreSQL are copied from a database that was migrated once (tests/support/prepared.py). Settings reach
Django by environment variables, so these are set here, before Django is set up. A server named by
OOLONG_TEST_DATABASE_URL or OOLONG_TEST_REDIS_URL is used instead.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from local_stack import environments, postgres, sync_client, valkey
from local_stack.paths import checkout_paths
from tests.support import prepared
from tests.support.ports import reserve_port
from tests.support.servers import start_server, until_it_serves

ROOT = Path(__file__).resolve().parent.parent
PATHS = checkout_paths(ROOT)
sync_client.ensure(PATHS)  # before a test module imports it
DJANGOS = "test_oolong"  # the name that Django gives the test database of `oolong`
SERVERS = frozenset({"postgres_url", "valkey_url"})  # the fixtures that start them
OURS = not os.environ.get("OOLONG_TEST_DATABASE_URL")  # the PostgreSQL of this session


# The same examples in every run, and as long for each as the machine takes.
settings.register_profile(
    "oolong", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("oolong")


def _prepare_django() -> None:
    """Tell Django's settings where the servers of this session will be, once they are started."""
    folder = Path(tempfile.gettempdir()) / f"oolong-tests-{os.getpid()}-{secrets.token_hex(4)}"
    password = secrets.token_hex(8)
    database = f"postgresql://oolong:{password}@127.0.0.1:{reserve_port()}/oolong"
    broker = f"redis://:{password}@127.0.0.1:{reserve_port()}/0"
    os.environ["DATABASE_URL"] = os.environ.get("OOLONG_TEST_DATABASE_URL", database)
    os.environ["REDIS_URL"] = os.environ.get("OOLONG_TEST_REDIS_URL", broker)
    os.environ["SECRET_KEY"] = "only-for-tests-" + password
    os.environ["OOLONG_DATA_DIR"] = str(folder / "store")
    os.environ["OOLONG_WEBUI_DIST"] = str(folder / "webui-dist")
    os.environ["OOLONG_PUBLIC_URL"] = "http://testserver"
    os.environ["ALLOWED_HOSTS"] = "testserver,127.0.0.1,localhost"
    os.environ["DJANGO_SETTINGS_MODULE"] = "control_plane.settings"
    os.environ["OOLONG_TEST_FOLDER"] = str(folder)


try:
    import django  # absent in the node environment, whose lane needs none of this
except ImportError:
    HAS_DJANGO = False
else:
    HAS_DJANGO = (ROOT / "platform/control_plane/settings.py").exists()
    if HAS_DJANGO:
        _prepare_django()
        django.setup()  # here, so that test modules may import models at their top


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark `database` what asks for a server of this session; pytest-django lets nothing else reach one."""
    for item in items:
        asked = getattr(item, "fixturenames", ())
        if item.get_closest_marker("django_db") or not SERVERS.isdisjoint(asked):
            item.add_marker("database")


@pytest.fixture(scope="session")
def services_folder() -> Iterator[Path]:
    """A temporary folder that the services' user can enter."""
    folder = Path(os.environ["OOLONG_TEST_FOLDER"])
    folder.mkdir(mode=0o711)
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_url(services_folder: Path) -> Iterator[str]:
    """URL of the session's PostgreSQL, superuser `oolong`; the database in it is `oolong`."""
    import psycopg  # absent in the node environment

    from tests.support.databases import new_database

    url = os.environ["DATABASE_URL"]
    if not OURS:
        yield url
        return
    credentials, _, address = url.removeprefix("postgresql://").partition("@")
    run_as = postgres.service_user()
    cluster = postgres.Cluster(
        bin=postgres.binaries(PATHS.venv, shared=PATHS.home),
        data=services_folder / "postgres",
        port=int(address.partition(":")[2].partition("/")[0]),
        password=credentials.partition(":")[2],
        durable=False,
        run_as=run_as,
    )
    copied = dataclasses.replace(cluster, password=prepared.migrated_cluster(PATHS, cluster.data))
    process = start_server(cluster.argv(), cwd=cluster.data, run_as=run_as)
    until_it_serves(copied.is_ready, process=process, what="PostgreSQL", cwd=cluster.data)
    with psycopg.connect(copied.url, autocommit=True) as server:
        server.execute(psycopg.sql.SQL("ALTER ROLE oolong PASSWORD {}").format(cluster.password))
    new_database(url, DJANGOS)
    yield url
    process.send_signal(signal.SIGQUIT)
    process.wait(timeout=60)


@pytest.fixture(scope="session")
def valkey_url(services_folder: Path) -> Iterator[str]:
    """URL of the session's Valkey."""
    url = os.environ["REDIS_URL"]
    if os.environ.get("OOLONG_TEST_REDIS_URL"):
        yield url
        return
    credentials, _, address = url.removeprefix("redis://:").partition("@")
    run_as = postgres.service_user()
    broker = valkey.Broker(
        binary=valkey.binary(PATHS.venv, shared=PATHS.home),
        data=services_folder / "valkey",
        port=int(address.partition(":")[2].partition("/")[0]),
        password=credentials,
        durable=False,
        run_as=run_as,
    )
    broker.prepare()
    process = start_server(broker.argv(), cwd=broker.data, run_as=run_as)
    until_it_serves(broker.is_ready, process=process, what="Valkey", cwd=broker.data)
    yield url
    process.kill()
    process.wait(timeout=60)


if HAS_DJANGO:

    def pytest_collection_finish(session: pytest.Session) -> None:
        """Migrate here if it is to be done: the first test that wants tables has a limit of time."""
        wanted = any(item.get_closest_marker("database") for item in session.items)
        if OURS and not session.config.option.collectonly and wanted:
            prepared.make_ready(PATHS)

    @pytest.fixture(scope="session")
    def django_db_modify_db_settings(postgres_url: str) -> None:
        """pytest-django asks for this before it makes the test database: start PostgreSQL then, not sooner."""
        from django.db import connection

        # Ours comes with its tables; a server that was named is migrated.
        connection.settings_dict["TEST"]["MIGRATE"] = not OURS
        # A server that stands still for a while is not away.
        options = connection.settings_dict["OPTIONS"]
        options["connect_timeout"] = options["pool"]["timeout"] = 120

    @pytest.fixture(scope="session")
    def django_db_keepdb() -> bool:
        """The database that comes with our server is taken as it is, and ends with the server."""
        return OURS

    @pytest.fixture(scope="session")
    def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
        """Tests that commit are cleaned up after with TRUNCATE, which the audit log refuses otherwise."""
        from django.db import connection

        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute("ALTER TABLE accounts_auditentry DISABLE TRIGGER audit_table")


@pytest.fixture(scope="session")
def node_python() -> Path:
    """Python of the node environment (torch, SGLang)."""
    named = os.environ.get("OOLONG_NODE_PYTHON")
    if named:
        return Path(named)
    environment = environments.node_environment(PATHS)
    if not environment.is_ready():
        pytest.fail("no node environment for these lists: run `python3 manage.py setup` first")
    return environment.python


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout."""
    return ROOT
