"""A control plane as processes of its own (web, worker, beat) over a given database, and optionally a real agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg

from tests.support import node_ports
from tests.support.management import ManagementProcess
from tests.support.ports import reserve_port

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("web", "worker", "beat")
SECRETS = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "DJANGO_SETTINGS_MODULE", "OOLONG_DATA_DIR")


@dataclass
class ControlPlane:
    folder: Path
    database_url: str
    redis_url: str
    webui_dist: Path = ROOT / "webui" / "dist"
    port: int = field(default_factory=reserve_port)
    heartbeat_seconds: float = 1.0
    web_application: str = "control_plane.asgi:application"
    web_options: tuple[str, ...] = ()  # more words for the server of the web process
    settings: dict[str, str] = field(default_factory=dict)  # more environment variables of its processes
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _management: ManagementProcess | None = field(default=None, init=False, repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def agent_data(self) -> Path:
        return self.folder / "agent"

    def prepare(self) -> None:
        """Tables, the first user, team, project and quota."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.manage("migrate", "--verbosity", "0")  # with nothing to do, where the tables were copied
        self.manage("init_embedded")
        self.keep_ports_apart()

    def keep_ports_apart(self) -> None:
        """Nodes on this machine that belong to other control planes have other ports. Once there are tables."""
        with psycopg.connect(self.database_url, autocommit=True) as database:
            database.execute(node_ports.apart().encode())

    def manage(self, *words: str) -> str:
        """Run a management command; its standard output without the last newline."""
        if self._management is None:
            self._management = ManagementProcess(self.environment(), self.folder / "management.log")
        return self._management.run(words)

    def login_path(self) -> str:
        return self.manage("login_link").splitlines()[-1].removeprefix(self.url)

    def token(self, name: str = "test") -> str:
        return self.manage("create_token", "--name", name, "--scopes", "*").splitlines()[-1]

    def client(self, token: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=60, trust_env=False)

    def start(self) -> None:
        """Web, worker and beat; returns when the web process answers."""
        for name in PARTS:
            self.start_part(name)
        self.wait_for_web()

    def start_part(self, name: str) -> None:
        """One of web, worker, beat."""
        self._start(name, self._arguments(name), self.environment())

    def kill_part(self, name: str) -> None:
        """SIGKILL to the whole process group: nothing is flushed, no transaction ends in order."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=60)

    def wait_for_web(self) -> None:
        deadline = time.monotonic() + 180  # it may be one of six processes that start at once
        while not self._answers():
            if time.monotonic() > deadline or self.processes["web"].poll() is not None:
                raise RuntimeError(f"the web process did not come up:\n{self.said('web')}")
            time.sleep(0.1)

    def start_agent(self, *, node_python: Path, slots: int) -> None:
        """A real agent for this machine with `slots` CPU slots."""
        token = self.folder / "enroll-token"
        token.write_text(self.manage("join_token").splitlines()[-1])
        words = ["-m", "gpu_agents.agent", "run", "--server", self.url, "--data-dir", str(self.agent_data)]
        words += ["--join-token-file", str(token), "--name", "this-machine", "--slots", str(slots)]
        words += ["--device", "cpu", "--node-python", str(node_python)]
        environment = {name: value for name, value in self.environment().items() if name not in SECRETS}
        self._start("agent", words, environment)

    def said(self, name: str) -> str:
        """The end of a process's log, for the message of a failure."""
        log = self.folder / f"{name}.log"
        return log.read_text(errors="replace")[-3000:] if log.exists() else ""

    def close(self) -> None:
        """End the agent, its jobs, then the control plane."""
        agent = self.processes.pop("agent", None)
        if agent is not None:
            agent.terminate()
            _wait_or_kill(agent, seconds=10)
            words = [
                "-m",
                "gpu_agents.agent",
                "terminate-jobs",
                "--data-dir",
                str(self.agent_data),
                "--grace",
                "2",
            ]
            subprocess.run(
                [sys.executable, *words], cwd=ROOT, env=self.environment(), timeout=120, check=False
            )
        ending = [process for process in self.processes.values() if process.poll() is None]
        self.processes.clear()
        for process in ending:
            os.killpg(process.pid, signal.SIGTERM)
        for process in ending:
            _wait_or_kill(process, seconds=6)
        if self._management is not None:
            self._management.close()

    def _start(self, name: str, words: list[str], environment: Mapping[str, str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/api/v1/health", timeout=30, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "SECRET_KEY": "only-for-tests",
            "DJANGO_SETTINGS_MODULE": "control_plane.settings",
            "OOLONG_DATA_DIR": str(self.folder / "store"),
            "OOLONG_WEBUI_DIST": str(self.webui_dist),
            "OOLONG_PUBLIC_URL": self.url,
            "OOLONG_HEARTBEAT_SECONDS": str(self.heartbeat_seconds),
            "ALLOWED_HOSTS": "127.0.0.1,localhost",
            "PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}",
            "OMP_NUM_THREADS": "1",
            **self.settings,
        }

    def _arguments(self, name: str) -> list[str]:
        celery = ["-m", "celery", "--app", "control_plane", "--workdir", str(ROOT / "platform")]
        if name == "web":
            words = ["-m", "uvicorn", self.web_application, "--host", "127.0.0.1"]
            return [
                *words,
                "--port",
                str(self.port),
                "--lifespan",
                "off",
                "--no-access-log",
                "--no-proxy-headers",
                *self.web_options,
            ]
        if name == "worker":
            words = [*celery, "worker", "--concurrency", "1", "--loglevel", "WARNING"]
            return [*words, "--without-gossip", "--without-mingle", "--hostname", f"{self.port}@localhost"]
        return [
            *celery,
            "beat",
            "--loglevel",
            "WARNING",
            "--pidfile",
            "",
            "--schedule",
            str(self.folder / "beat"),
        ]


def _wait_or_kill(process: subprocess.Popen[bytes], *, seconds: float) -> None:
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=60)
