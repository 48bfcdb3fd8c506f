"""A real stack for tests: web, worker, beat and agent as processes of their own over the test's database."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
from django.db import connection

from control_plane.accounts import services as accounts
from control_plane.common import clock
from control_plane.fleet.services import create_enrolment_token
from control_plane.telemetry.models import MetricPoint
from control_plane.telemetry.rows import with_part
from oolong.contracts.telemetry import Points, decode_line

ROOT = Path(__file__).resolve().parents[3]
WRITER = Path(__file__).with_name("quick_writer.py")

PointKey = tuple[str, str, str, int, float]  # name, source, axis, x, value


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(
    ready: Callable[[], bool], *, seconds: float, what: str, logs: Callable[[], str] = lambda: ""
) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s\n{logs()}"
        time.sleep(0.05)


@dataclass
class Stack:
    folder: Path
    port: int = field(default_factory=free_port)
    token: str = ""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def agent_data(self) -> Path:
        return self.folder / "agent"

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=30, trust_env=False)

    # --- processes ----------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        environment = self.environment()
        if name == "agent":
            for secret in (
                "DATABASE_URL",
                "REDIS_URL",
                "SECRET_KEY",
                "DJANGO_SETTINGS_MODULE",
                "OOLONG_DATA_DIR",
            ):
                environment.pop(secret, None)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *self._arguments(name)],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """SIGKILL to the whole process group: nothing is flushed, no transaction ends in order."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10)

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)
        if self.agent_data.exists():
            arguments = [
                "-m",
                "gpu_agents.agent",
                "end-jobs",
                "--data-dir",
                str(self.agent_data),
                "--grace",
                "1",
            ]
            subprocess.run(
                [sys.executable, *arguments], cwd=ROOT, env=self.environment(), check=True, timeout=60
            )

    def wait_for_web(self) -> None:
        self.wait(self._answers, seconds=60, what="the web process answers")

    def wait(self, ready: Callable[[], bool], *, seconds: float, what: str) -> None:
        until(ready, seconds=seconds, what=what, logs=self.said)

    def said(self) -> str:
        """The last lines of every process's log."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/api/v1/health", timeout=5, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def environment(self) -> dict[str, str]:
        credentials, _, _ = os.environ["DATABASE_URL"].rpartition("/")
        return {
            **os.environ,
            "DATABASE_URL": f"{credentials}/{connection.settings_dict['NAME']}",
            "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
            "OOLONG_HEARTBEAT_SECONDS": "1",
            "OMP_NUM_THREADS": "1",
        }

    def _arguments(self, name: str) -> list[str]:
        celery = ["-m", "celery", "--app", "control_plane", "--workdir", str(ROOT / "platform")]
        match name:
            case "web":
                words = ["-m", "uvicorn", "control_plane.asgi:application", "--host", "127.0.0.1"]
                return [*words, "--port", str(self.port), "--lifespan", "off", "--no-access-log"]
            case "worker":
                words = [*celery, "worker", "--concurrency", "1", "--loglevel", "WARNING"]
                return [
                    *words,
                    "--without-gossip",
                    "--without-mingle",
                    "--hostname",
                    f"{self.port}@localhost",
                ]
            case "beat":
                words = [*celery, "beat", "--loglevel", "WARNING", "--pidfile", ""]
                return [*words, "--schedule", str(self.folder / "beat-schedule")]
            case "agent":
                words = [
                    "-m",
                    "gpu_agents.agent",
                    "run",
                    "--server",
                    self.url,
                    "--data-dir",
                    str(self.agent_data),
                ]
                words += [
                    "--enrol-token-file",
                    str(self.folder / "enrol-token"),
                    "--name",
                    "test",
                    "--slots",
                    "1",
                ]
                return [*words, "--node-python", str(self.folder / "node-python")]
            case _:
                raise ValueError(f"unknown process {name!r}")


def prepare(folder: Path) -> Stack:
    """A stack over the test's database with a project, a token, and an agent whose trainer is `quick_writer`."""
    stack = Stack(folder)
    project = accounts.init_embedded()
    user = project.memberships.get().user
    stack.token = accounts.create_token(user=user, project=project, name="test", scopes=["*"])[1]
    (folder / "enrol-token").write_text(create_enrolment_token(now=clock.now())[0])
    node_python = folder / "node-python"
    node_python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{WRITER}" "$@"\n')
    node_python.chmod(0o755)
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    return stack


def submit(stack: Stack, *, steps: int, pause_seconds: float) -> str:
    """Upload a dataset, name a model and start a run of one job that writes `steps` times; the run's id."""
    rows = "".join(f'{{"q":"{n}","a":"{n}","c":"{n}"}}\n' for n in range(32))
    with stack.client() as client:
        upload = _made(client.post("/uploads?filename=d.jsonl&purpose=dataset", content=rows.encode()))
        dataset = _made(client.post("/datasets", json={"name": "numbers", "description": ""}))
        mapping = {
            "prompt_column": "q", "answer_column": "a", "completion_column": "c", "default_split": "train",
            "template": "{q}", "system": "",
        }  # fmt: skip
        version = _made(
            client.post(
                f"/datasets/{dataset['id']}/versions", json={"upload_id": upload["id"], "mapping": mapping}
            )
        )
        model = _made(client.post("/models", json={"name": "tiny", "path": str(stack.folder / "model")}))
        spec = {
            "kind": "sft",
            "name": "writes quickly",
            "model": {"base_model": model["id"]},
            "dataset": {"version": version["id"]},
            "sft": {"steps": steps, "validation_split": None},
            "notes": str(pause_seconds),
        }
        return str(_made(client.post("/runs", json={"spec": spec}))["id"])


def _made(answer: httpx.Response) -> Any:
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


# --- what must be equal -----------------------------------------------------------------------------------


def points_in_files(stack: Stack) -> Counter[PointKey]:
    """Every point of every outbox file that the agent's jobs wrote."""
    found: Counter[PointKey] = Counter()
    for file in sorted(stack.agent_data.glob("attempts/*/jobs/*/outbox/*.jsonl")):
        job = msgspec.json.decode((file.parents[1] / "job.json").read_bytes())
        source = job["name"] if job["incarnation"] == 0 else f"{job['name']}#{job['incarnation']}"
        for text in file.read_bytes().splitlines():
            line = decode_line(text)
            if isinstance(line, Points):
                for name, value in line.values.items():
                    found[name, with_part(source, line.source), line.axis, line.x, value] += 1
    return found


def points_in_database() -> Counter[PointKey]:
    rows = MetricPoint.objects.values_list("series__name", "series__source", "series__axis", "x", "value")
    return Counter(rows)
