"""What all tests share: a PostgreSQL and a Valkey of their own, started at first use, gone with the session.

The servers are the embedded ones, in a temporary folder, on ports of their own, without fsync. Settings reach
Django by environment variables, so these are set here, before Django is set up. A server named by
OOLONG_TEST_DATABASE_URL or OOLONG_TEST_REDIS_URL is used instead.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local_stack import environments, postgres, valkey
from local_stack.places import places_here
from tests.support.ports import reserve_port
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
PLACES = places_here(ROOT)
PR_SET_PDEATHSIG = 1


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


def _end_with_parent() -> None:
    """Have the kernel stop this child when pytest dies, even by SIGKILL."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def _start(argv: list[str], *, cwd: Path, run_as: postgres.RunAs | None) -> subprocess.Popen[bytes]:
    dropped: dict[str, Any] = run_as.popen_arguments() if run_as else {}
    words = argv
    if run_as is None:
        dropped["preexec_fn"] = _end_with_parent
    else:
        # The order to die with the parent is lost when rights are dropped, so it is given after that.
        setpriv = shutil.which("setpriv")
        words = [setpriv, "--pdeathsig", "INT", *argv] if setpriv else argv
    with (cwd.parent / f"{cwd.name}.log").open("wb") as log:
        return subprocess.Popen(words, cwd=cwd, stdout=log, stderr=subprocess.STDOUT, **dropped)


def _until(ready: Callable[[], bool], *, process: subprocess.Popen[bytes], what: str, log: Path) -> None:
    wait_until(lambda: ready() or process.poll() is not None, lambda: f"{what}: {log.read_text()[-2000:]}")
    if process.poll() is not None:
        raise RuntimeError(f"{what} for the tests did not start:\n{log.read_text()[-2000:]}")


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
    url = os.environ["DATABASE_URL"]
    if os.environ.get("OOLONG_TEST_DATABASE_URL"):
        yield url
        return
    credentials, _, address = url.removeprefix("postgresql://").partition("@")
    run_as = postgres.service_user()
    cluster = postgres.Cluster(
        bin=postgres.binaries(PLACES.venv, shared=PLACES.home),
        data=services_folder / "postgres",
        port=int(address.partition(":")[2].partition("/")[0]),
        password=credentials.partition(":")[2],
        durable=False,
        run_as=run_as,
    )
    cluster.initialise()
    process = _start(cluster.argv(), cwd=cluster.data, run_as=run_as)
    _until(cluster.is_ready, process=process, what="PostgreSQL", log=services_folder / "postgres.log")
    cluster.ensure_database()
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
        binary=valkey.binary(PLACES.venv, shared=PLACES.home),
        data=services_folder / "valkey",
        port=int(address.partition(":")[2].partition("/")[0]),
        password=credentials,
        durable=False,
        run_as=run_as,
    )
    broker.prepare()
    process = _start(broker.argv(), cwd=broker.data, run_as=run_as)
    _until(broker.is_ready, process=process, what="Valkey", log=services_folder / "valkey.log")
    yield url
    process.kill()
    process.wait(timeout=60)


if HAS_DJANGO:

    @pytest.fixture(scope="session")
    def django_db_modify_db_settings(postgres_url: str) -> None:
        """pytest-django asks for this before it makes the test database: start PostgreSQL then, not sooner."""

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
    environment = environments.node_environment(PLACES)
    if not environment.is_ready():
        pytest.fail("no node environment for these lists: run `python3 manage.py setup` first")
    return environment.python


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout."""
    return ROOT
