"""A migrated PostgreSQL to copy: made once for what its tables are made of, then shared by every session of tests.

To migrate costs ten times what a copy does. The copy is named by a digest of its sources, so one that was made
of others is never taken; one lock covers making, copying and forgetting, so sessions may begin at once.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata, util
from pathlib import Path

from local_stack import postgres
from local_stack.files import file_lock
from local_stack.paths import Paths
from tests.support.ports import reserve_port
from tests.support.servers import start_server, until_it_serves

TABLES = "tables"  # the database that is copied: nobody else connects to it, or the server could not copy it
SHELF = "test-databases"
HALF = ".half-"  # in the name of what is being made
KEPT = 5  # copies of other sources, for clones and branches beside each other
OURS = re.compile(rb"^\s*(?:import|from) ((?:control_plane|oolong)[\w.]*)", re.MULTILINE)


def digest(words: Iterable[str], files: Iterable[Path]) -> str:
    """What stands in the words and the files, as a short name."""
    found = hashlib.sha256()
    for word in words:
        found.update(f"{len(word)}:{word}".encode())
    for file in files:
        data = file.read_bytes()
        found.update(f"{file.name}:{len(data)}:".encode() + data)
    return found.hexdigest()[:20]


def sources() -> str:
    """Digest of what the tables are made of: migrations, what of ours they import, and what writes and runs the SQL;
    and of who owns the files, for PostgreSQL serves its own only."""
    from django.apps import apps
    from django.conf import settings

    words = [f"{name} {metadata.version(name)}" for name in ("django", "psycopg", postgres.PACKAGE)]
    words += [settings.AUTH_USER_MODEL, f"of user {_owner()}"]
    files = [Path(__file__), _file_of(postgres.__name__)]
    for app in apps.get_app_configs():
        words.append(app.name)
        files += sorted((Path(app.path) / "migrations").glob("*.py"))
    imported = {name.decode() for file in files for name in OURS.findall(file.read_bytes())}
    return digest(words, files + [_file_of(name) for name in sorted(imported)])


def _owner() -> int:
    run_as = postgres.service_user()
    return run_as.uid if run_as else os.geteuid()


def _file_of(module: str) -> Path:
    found = util.find_spec(module)
    assert found is not None and found.origin is not None, module
    return Path(found.origin)


def keep(shelf: Path, name: str, make: Callable[[Path], None], *, copy_to: Path | None = None) -> None:
    """Have what `make` makes in a folder of that name on the shelf, made or there already; and a copy, if asked for.

    What a crash left half made has another name, for its server may be at work in it a moment longer than its session.
    """
    with file_lock(shelf / "lock"):
        shelf.chmod(0o711)  # the services' user may enter, as it must its data directory
        folder = shelf / name
        mark = shelf / f"{name}.ready"
        if not mark.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _make_beside(folder, make)
        mark.touch()
        _forget(sorted(shelf.glob("*.ready"), key=lambda file: file.stat().st_mtime_ns)[:-KEPT])
        if copy_to is not None:
            subprocess.run(["cp", "-a", "--", str(folder), str(copy_to)], check=True)


def _make_beside(folder: Path, make: Callable[[Path], None]) -> None:
    for left in folder.parent.glob(f"*{HALF}*"):
        shutil.rmtree(left, ignore_errors=True)
    half = folder.with_name(f"{folder.name}{HALF}{secrets.token_hex(4)}")
    half.mkdir(mode=0o711)
    half.chmod(0o711)
    try:
        make(half)
        half.rename(folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _forget(marks: Sequence[Path]) -> None:
    for mark in marks:
        mark.unlink()
        shutil.rmtree(mark.with_suffix(""), ignore_errors=True)


def make_ready(paths: Paths) -> None:
    """Make the copy for these sources, if there is none: outside of tests, which have limits of time."""
    keep(paths.home / SHELF, sources(), lambda folder: _make(paths, folder))


def migrated_cluster(paths: Paths, data: Path) -> str:
    """A data directory with empty tables in the database TABLES; returns the password of its superuser."""
    copy = data.with_name(f"{data.name}.copy")
    keep(paths.home / SHELF, sources(), lambda folder: _make(paths, folder), copy_to=copy)
    (copy / "data").rename(data)
    password = (copy / "password").read_text()
    shutil.rmtree(copy)
    return password


def _make(paths: Paths, folder: Path) -> None:
    password = secrets.token_hex(16)
    (folder / "password").touch(mode=0o600)
    (folder / "password").write_text(password)
    cluster = postgres.Cluster(
        bin=postgres.binaries(paths.venv, shared=paths.home), data=folder / "data", port=reserve_port(),
        password=password, durable=False, run_as=postgres.service_user(),
    )  # fmt: skip
    cluster.initialize()
    process = start_server(cluster.argv(), cwd=cluster.data, run_as=cluster.run_as)
    try:
        until_it_serves(cluster.is_ready, process=process, what="PostgreSQL", cwd=cluster.data)
        cluster.ensure_database()
        cluster.ensure_database(TABLES)
        address = cluster.url.rpartition("/")[0]
        subprocess.run(
            [sys.executable, "-m", "django", "migrate", "--no-input", "--verbosity", "0"],
            env={
                **os.environ,
                "DATABASE_URL": f"{address}/{TABLES}",
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            check=True,
        )
    finally:
        process.send_signal(signal.SIGINT)  # in order, or the copy would begin with a recovery
        status = process.wait()
    if status != 0:  # a full disk, or killed: such a copy would begin with a recovery, or not at all
        raise RuntimeError(f"PostgreSQL did not end in order: status {status}, see {folder}")
