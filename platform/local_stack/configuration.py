"""Configuration of a stack: ports and addresses in var/stack.json, Django's variables in var/stack.env.

Passwords are in `<data>/secrets.json`, next to the data that they protect: the data stays readable after var/ is
deleted.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shlex
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from local_stack import environments, postgres, valkey
from local_stack.errors import StackError
from local_stack.files import read_json, write_atomically, write_json
from local_stack.paths import Paths
from oolong import cuda_host

# A run needs a trainer and an engine, also on a machine with a single GPU.
DEFAULT_SLOTS_PER_GPU = 2


@dataclass(frozen=True)
class StackConfiguration:
    """Everything that is resolved before processes start, without secrets."""

    ports: dict[str, int]  # web, and postgres and valkey if embedded
    device: str  # cpu | cuda
    node_python: str
    slots: int  # CPU slots that the agent offers
    slots_per_gpu: int
    web_processes: int
    worker_processes: int
    embedded_postgres: bool
    embedded_valkey: bool
    agent: bool  # whether this machine is also a node
    code: str  # digest of the running code

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['web']}"


def cpu_slot_count(environ: Mapping[str, str]) -> int:
    """CPU slots of this machine: one per core, at least the two that a run needs, at most eight."""
    override = environ.get("OOLONG_SLOTS")
    if override:
        if not override.isdigit() or int(override) < 1:
            raise StackError(f"OOLONG_SLOTS={override!r} is not an integer of 1 or more")
        return int(override)
    return min(8, max(2, len(os.sched_getaffinity(0))))


def process_count(environ: Mapping[str, str], name: str, *, default: int, most: int = 64) -> int:
    """Parse a count: OOLONG_WEB_PROCESSES, OOLONG_WORKER_PROCESSES or OOLONG_SLOTS_PER_GPU."""
    override = environ.get(name)
    if not override:
        return default
    if not override.isdigit() or not 1 <= int(override) <= most:
        raise StackError(f"{name}={override!r} is not an integer from 1 to {most}")
    return int(override)


def read_configuration(paths: Paths) -> StackConfiguration | None:
    """The configuration of the last start; None if there is none or another version wrote it."""
    record = read_json(paths.stack_file)
    names = set(StackConfiguration.__dataclass_fields__)
    if not names <= set(record):
        return None
    return StackConfiguration(**{name: record[name] for name in names})


def write_configuration(paths: Paths, configuration: StackConfiguration) -> None:
    """Write var/stack.json, which also tells users and tools the URL and the data folder."""
    record = {**asdict(configuration), "url": configuration.url, "data": str(paths.data)}
    write_json(paths.stack_file, record)


@dataclass(frozen=True)
class Secrets:
    secret_key: str
    postgres_password: str
    valkey_password: str


def load_secrets(paths: Paths) -> Secrets:
    """The clone's secrets, generated at the first call, readable by their owner only."""
    file = paths.data / "secrets.json"
    record = read_json(file)
    names = ("secret_key", "postgres_password", "valkey_password")
    if any(name not in record for name in names):
        if (paths.data / "postgres").exists():
            raise StackError(
                f"{file} is missing or damaged, but {paths.data / 'postgres'} holds data that needs its password. "
                "Restore the file, or delete this clone's data: python3 manage.py clean"
            )
        record = {name: secrets.token_hex(24) for name in names}
        write_json(file, record, mode=0o600)
    return Secrets(**{name: str(record[name]) for name in names})


def prepare_data_folder(paths: Paths) -> None:
    """Create the data folder. As root it is traversable, not listable, by others: the database user needs it."""
    mode = 0o711 if paths.as_root else 0o700
    for folder in (paths.data, paths.store, paths.agent_data):
        folder.mkdir(parents=True, exist_ok=True)
    paths.data.chmod(mode)
    paths.store.chmod(0o700)
    paths.agent_data.chmod(0o700)
    if paths.as_root:
        paths.home.chmod(0o755)
        paths.data.parent.chmod(0o755)


def build_cluster(paths: Paths, configuration: StackConfiguration) -> postgres.Cluster:
    return postgres.Cluster(
        bin=postgres.binaries(paths.venv, shared=paths.home),
        data=paths.data / "postgres",
        port=configuration.ports["postgres"],
        password=load_secrets(paths).postgres_password,
        run_as=postgres.service_user(),
    )


def build_broker(paths: Paths, configuration: StackConfiguration) -> valkey.Broker:
    return valkey.Broker(
        binary=valkey.binary(paths.venv, shared=paths.home),
        data=paths.data / "valkey",
        port=configuration.ports["valkey"],
        password=load_secrets(paths).valkey_password,
        run_as=postgres.service_user(),
    )


def django_variables(
    paths: Paths, configuration: StackConfiguration, environ: Mapping[str, str]
) -> dict[str, str]:
    """Environment variables of the control plane. `environ` names external services."""
    known = load_secrets(paths)
    if configuration.embedded_postgres:
        database_url = build_cluster(paths, configuration).url
    else:
        database_url = environ["DATABASE_URL"]
    redis_url = (
        build_broker(paths, configuration).url if configuration.embedded_valkey else environ["REDIS_URL"]
    )
    hosts = ["127.0.0.1", "localhost", "[::1]", socket.gethostname()]
    return {
        "DJANGO_SETTINGS_MODULE": "control_plane.settings",
        "SECRET_KEY": known.secret_key,
        "OOLONG_METRICS_TOKEN": derive_secret(known.secret_key, "metrics"),
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "OOLONG_DATA_DIR": str(paths.store),
        "OOLONG_WEBUI_DIST": str(paths.webui / "dist"),
        "OOLONG_PUBLIC_URL": configuration.url,
        "ALLOWED_HOSTS": ",".join(hosts),
    }


def derive_secret(secret: str, purpose: str) -> str:
    """Derive a secret for one purpose. It reveals nothing about the original secret."""
    return hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).hexdigest()[:40]


def write_env_file(paths: Paths, variables: Mapping[str, str]) -> None:
    """Write var/stack.env for shells (`set -a; . var/stack.env`), readable by its owner only."""
    lines = ["# Written by `manage.py up`. Contains passwords."]
    lines += [f"{name}={shlex.quote(value)}" for name, value in sorted(variables.items())]
    write_atomically(paths.env_file, "\n".join(lines) + "\n", mode=0o600)


def read_env_file(paths: Paths) -> dict[str, str]:
    """Read var/stack.env; empty before the first start."""
    if not paths.env_file.exists():
        return {}
    variables = {}
    for line in paths.env_file.read_text().splitlines():
        name, sign, value = line.partition("=")
        if sign and not name.startswith("#"):
            variables[name] = "".join(shlex.split(value))
    return variables


def child_environment(paths: Paths, variables: Mapping[str, str]) -> dict[str, str]:
    """The full environment of the services. Little is inherited, so that all machines behave the same."""
    passed = ("HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "TZ", "CUDA_VISIBLE_DEVICES", *cuda_host.PASSED_ON)
    inherited = {name: os.environ[name] for name in passed if name in os.environ}
    inherited |= {name: value for name, value in os.environ.items() if name.startswith("OOLONG_")}
    system_path = os.environ.get("PATH", "/usr/bin:/bin")
    return {
        **inherited,
        "PATH": f"{paths.venv / 'bin'}:{system_path}",
        "PYTHONPATH": f"{paths.root / 'platform'}:{paths.root}",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        **variables,
    }


def resolve(
    paths: Paths, *, ports: dict[str, int], device: str, environ: Mapping[str, str]
) -> StackConfiguration:
    """Resolve the configuration of this start."""
    embedded_postgres = not environ.get("DATABASE_URL")
    embedded_valkey = not environ.get("REDIS_URL")
    if not embedded_postgres and not environ["DATABASE_URL"].startswith(("postgresql://", "postgres://")):
        raise StackError("DATABASE_URL must begin with postgresql://. Other databases are not supported.")
    unused = {"postgres": not embedded_postgres, "valkey": not embedded_valkey}
    return StackConfiguration(
        ports={name: port for name, port in ports.items() if not unused.get(name, False)},
        device=device,
        node_python=str(environments.node_environment(paths, device=device).python),
        slots=cpu_slot_count(environ),
        slots_per_gpu=process_count(environ, "OOLONG_SLOTS_PER_GPU", default=DEFAULT_SLOTS_PER_GPU, most=8),
        web_processes=process_count(environ, "OOLONG_WEB_PROCESSES", default=1),
        worker_processes=process_count(environ, "OOLONG_WORKER_PROCESSES", default=2),
        embedded_postgres=embedded_postgres,
        embedded_valkey=embedded_valkey,
        agent=environ.get("OOLONG_NO_AGENT") != "1",
        code=code_digest(paths),
    )


def code_digest(paths: Paths) -> str:
    """Digest of names, sizes and modification times of the code. Takes a few milliseconds."""
    digest = hashlib.sha256()
    for folder in ("platform", "gpu_agents", "trainers"):
        for path in sorted((paths.root / folder).rglob("*.py")):
            status = path.stat()
            digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def supervisor_python(paths: Paths) -> str:
    """The Python that runs the supervisor: that of `.venv`, which outlives the Python that ran manage.py."""
    return str(paths.venv_python) if paths.venv_python.exists() else sys.executable
