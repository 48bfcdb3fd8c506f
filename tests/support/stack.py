"""The whole real system for tests: a database, a broker, web, worker, beat, and nodes that share no path.

Everything is a process of its own, on ports of its own, in one temporary folder; nodes run the real jobs (SGLang
on the CPU, torchrun). `manage.py up` takes longer because it also prepares an installation that lasts.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg

from gpu_agents.agent.records import SupervisorRecord, read_json
from local_stack import postgres, valkey
from local_stack.paths import checkout_paths
from oolong.client import Client
from oolong.contracts.attempt import JobFile, read_job
from oolong.system.process_handle import descendants, find_process, send_signal
from tests.support.control_plane import PARTS, ROOT, SECRETS, ControlPlane
from tests.support.databases import new_database
from tests.support.ports import reserve_port

logging.getLogger("httpx").setLevel(logging.WARNING)  # these tests ask ten times a second

# What nvidia-smi says on a node whose GPUs are emulated: %s are the GPUs, and no process computes on them.
NVIDIA_SMI = """#!/bin/sh
case "$1" in --query-gpu=*) printf '%s';; esac
"""
OF_A_TEAM = """
import django
django.setup()
from control_plane.accounts.identity import services as accounts
project = accounts.init_embedded(username=%(name)r, team=%(name)r)
user = project.memberships.get().user
print(accounts.create_token(user=user, project=project, name="test", scopes=["*"])[1])
"""
BOOTSTRAP = """
import json, django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)  # with nothing to do, where the tables were copied
from control_plane.accounts.identity import services as accounts
from control_plane.fleet.pools import default_pool
project = accounts.init_embedded()
default_pool()
user = project.memberships.get().user
print(json.dumps(accounts.create_token(user=user, project=project, name="test", scopes=["*"])[1]))
"""


def until(
    ready: Callable[[], Any], *, seconds: float, what: str, said: Callable[[], str] = lambda: ""
) -> Any:
    """The first true value of `ready`; fails naming what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        value = ready()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s\n{said()}"
        time.sleep(0.1)


@dataclass
class Broker:
    """A Valkey of the stack's own, which may be wiped and killed without hurting other tests."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    server: valkey.Broker = field(init=False)

    def __post_init__(self) -> None:
        paths = checkout_paths(ROOT)
        self.server = valkey.Broker(
            binary=valkey.binary(paths.venv, shared=paths.home), data=self.folder, port=reserve_port(),
            password="of-the-tests", durable=False, run_as=postgres.service_user(),
        )  # fmt: skip
        self.server.prepare()

    def start(self) -> None:
        dropped: dict[str, Any] = self.server.run_as.popen_arguments() if self.server.run_as else {}
        with self.folder.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen(
                self.server.argv(), cwd=self.folder, stdout=log, stderr=log, start_new_session=True, **dropped
            )
        until(self.server.is_ready, seconds=120, what="Valkey answers")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=60)

    def wipe(self) -> None:
        """FLUSHALL: every queued task is gone."""
        import redis

        with redis.Redis.from_url(self.server.url) as connection:
            connection.flushall()


@dataclass
class Node:
    """A node: an agent with a data directory of its own, and the processes of its jobs."""

    url: str
    data: Path
    name: str
    slots: int
    node_python: Path
    token: str
    switches: dict[str, Any] = field(default_factory=dict)
    peer_address: str = ""
    emulated_gpus: bool = False  # its slots are GPUs that only its nvidia-smi knows, so its jobs are scripts
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        module = "tests.support.switched_agent" if self.switches else "gpu_agents.agent"
        words = [sys.executable, "-m", module, "run", "--server", self.url, "--data-dir", str(self.data)]
        words += ["--join-token", self.token, "--name", self.name, "--slots", str(self.slots)]
        device = "cuda" if self.emulated_gpus else "cpu"
        words += ["--device", device, "--node-python", str(self.node_python), "--model-root", "/"]
        words += ["--job-path", str(ROOT / "tests")] if self.switches else []
        words += ["--peer-address", self.peer_address] if self.peer_address else []
        environment = {name: value for name, value in os.environ.items() if name not in SECRETS}
        environment |= {"PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
        environment |= {"OOLONG_SWITCHES": json.dumps(self.switches)}
        if self.emulated_gpus:
            programs = write_nvidia_smi(self.data.parent / "bin", node=self.name, gpus=self.slots)
            environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                words, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    @property
    def log(self) -> Path:
        return self.data.with_suffix(".log")

    def kill_agent(self) -> None:
        """SIGKILL to the agent alone; its jobs go on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=60)
        self.process = None

    def kill(self) -> None:
        """What a power cut does: the agent and every process of every job end at once."""
        if self.process is not None:
            self.kill_agent()
        while alive := self.job_processes():
            for pid in alive:
                send_signal(pid, signal.SIGKILL)
            time.sleep(0.05)

    def job_processes(self) -> list[int]:
        """Every living process that names this node's directory in its environment or arguments, but the agent.

        Jobs have it as HOME, their engines inherit that, supervisors name it in their arguments.
        """
        needle = str(self.data).encode()
        agent = self.process.pid if self.process is not None else 0
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) in (agent, os.getpid()):
                continue
            try:
                named = (
                    needle in (entry / "environ").read_bytes() or needle in (entry / "cmdline").read_bytes()
                )
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if named and find_process(int(entry.name)) is not None:
                found.append(int(entry.name))
        return found

    def supervised(self) -> dict[str, SupervisorRecord]:
        """Living jobs by name."""
        records = [read_json(path, SupervisorRecord) for path in self.data.glob("supervisors/*.json")]
        return {read_job(record.directory).name: record for record in records if record.handle.is_alive()}

    def engines(self) -> dict[str, int]:
        """Pids of the living engines (the server process, not its children) by rollout job."""
        found = {}
        for name, record in self.supervised().items():
            if name.startswith("rollout-"):
                for pid in descendants(record.pid):
                    try:
                        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    except (FileNotFoundError, ProcessLookupError):  # it ended
                        continue
                    if b"sglang.launch_server" in words:
                        found[name] = pid
                        break
        return found

    def jobs(self) -> Iterator[tuple[JobFile, Path]]:
        """Every incarnation of every job that ran here, with its directory."""
        for file in sorted(self.data.glob("attempts/*/jobs/*/job.json")):
            yield read_job(file.parent), file.parent

    def end(self) -> None:
        """Stop the agent, then whatever its jobs left."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                pass
        self.kill()

    def said(self) -> str:
        lines = self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""
        for job, directory in self.jobs():
            supervision = directory.parents[1] / "supervision" / directory.name
            for file in (
                supervision / "supervisor.log",
                supervision / "output.log",
                directory / "engine.log",
            ):
                text = file.read_text(errors="replace").strip() if file.exists() else ""
                lines += f"\n--- {self.name}: {directory.parts[-3][-6:]}/{job.name}#{job.incarnation} {file.name}\n"
                lines += text[-1500:]
        return f"--- {self.name}\n{lines}"


def write_nvidia_smi(folder: Path, *, node: str, gpus: int) -> Path:
    """The folder, with an nvidia-smi of so many idle GPUs of 80 GB."""
    folder.mkdir(exist_ok=True)
    rows = (f"{number}, GPU-{node}-{number}, H100, 81559, Disabled, 0, 0, 30, 0\\n" for number in range(gpus))
    (folder / "nvidia-smi").write_text(NVIDIA_SMI % "".join(rows))
    (folder / "nvidia-smi").chmod(0o755)
    return folder


@dataclass
class Stack:
    """Web, worker, beat, a broker of their own, and nodes."""

    folder: Path
    plane: ControlPlane
    broker: Broker
    node_python: Path
    token: str = ""
    nodes: dict[str, Node] = field(default_factory=dict)

    def start(self) -> None:
        self.broker.start()
        self.token = json.loads(self._python(BOOTSTRAP))
        self.plane.keep_ports_apart()
        self.plane.start()

    def client(self) -> Client:
        return Client(url=self.plane.url, token=self.token)

    def add_team(self, name: str) -> str:
        """A token of a new team's admin, for a project of its own."""
        return self._python(OF_A_TEAM % {"name": name})

    def add_node(
        self,
        name: str,
        *,
        slots: int,
        switches: dict[str, Any] | None = None,
        peer_address: str = "",
        pool: str = "default",
        emulated_gpus: bool = False,
    ) -> Node:
        """Enroll a node over the API and wait until the pool shows its slots."""
        folder = self.folder / f"node-{name}"
        folder.mkdir()
        with self.http() as http:
            answer = http.post(f"/pools/{pool}/join-tokens", json={})
        assert answer.status_code == 201, answer.text
        node = Node(
            self.plane.url, folder / "data", name, slots, self.node_python, answer.json()["token"],
            switches=switches or ({"scripts": True} if emulated_gpus else {}), peer_address=peer_address,
            emulated_gpus=emulated_gpus,
        )  # fmt: skip
        self.nodes[name] = node
        node.start()
        wanted = "SELECT count(*) FROM fleet_slot s JOIN fleet_node n ON s.node_id = n.id WHERE n.name = %s"
        until(
            lambda: self.value(wanted, name) == slots,
            seconds=120,
            what=f"{name} is in the pool",
            said=node.said,
        )
        return node

    def http(self) -> httpx.Client:
        return self.plane.client(self.token)

    # --- faults

    def control_plane_dies(self) -> None:
        for part in PARTS:
            self.plane.kill_part(part)

    def control_plane_returns(self) -> None:
        self.plane.start()

    # --- looking

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """What the database itself says, past every API."""
        with psycopg.connect(self.plane.database_url, autocommit=True) as connection:
            return connection.execute(sql, values).fetchall()

    def value(self, sql: str, *values: Any) -> Any:
        return self.rows(sql, *values)[0][0]

    def said(self) -> str:
        """The ends of all logs, for the message of a failure."""
        parts = [f"--- {name}\n{self.plane.said(name)}" for name in PARTS]
        return "\n".join([*parts, *(node.said() for node in self.nodes.values())])

    def close(self) -> None:
        for node in self.nodes.values():
            node.end()
        for part in list(self.plane.processes):
            self.plane.kill_part(part)
        if self.broker.process is not None and self.broker.process.poll() is None:
            self.broker.kill()

    def _python(self, program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program], env=self.plane.environment(), cwd=ROOT, capture_output=True,
            text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip().splitlines()[-1]


@contextmanager
def running_stack(
    folder: Path, *, postgres_url: str, node_python: Path, settings: dict[str, str] | None = None
) -> Iterator[Stack]:
    """A stack over a new database of a running server. Gone, with all its processes, at the end."""
    folder.mkdir(mode=0o711)
    folder.chmod(0o711)
    database = new_database(postgres_url, f"stack_{reserve_port()}_{os.getpid()}")
    broker = Broker(folder / "valkey")
    plane = ControlPlane(folder / "plane", database, broker.server.url, settings=settings or {})
    plane.folder.mkdir()
    stack = Stack(folder, plane, broker, node_python)
    try:
        stack.start()
        yield stack
    finally:
        stack.close()
