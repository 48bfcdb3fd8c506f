"""A real stack for tests: web, worker, beat and agent as processes of their own over the test's database."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
from django.db import connection

from control_plane.accounts.identity import services as accounts
from control_plane.accounts.models import Project
from control_plane.assets.datasets.validation_services import advance_validations
from control_plane.assets.models import BaseModel
from control_plane.core.infra import clock
from control_plane.fleet.pools import default_pool
from control_plane.fleet.services import create_join_token
from control_plane.telemetry.ingest.bulk_insert import with_part
from control_plane.telemetry.models import MetricPoint
from oolong.client import Client
from oolong.contracts.telemetry import Points, decode_line
from tests.support.control_plane import ControlPlane
from tests.support.stack import Node, until
from tests.support.tiny_specs import tiny_spec

WRITER = Path(__file__).with_name("quick_writer.py")

PointKey = tuple[str, str, str, int, float]  # name, source, axis, x, value


@dataclass
class Stack:
    """Web, worker, beat and one agent, started and killed by name, over the database of the running test."""

    folder: Path
    token: str = ""
    plane: ControlPlane = field(init=False)
    node: Node = field(init=False)

    def __post_init__(self) -> None:
        credentials, _, _ = os.environ["DATABASE_URL"].rpartition("/")
        self.plane = ControlPlane(
            self.folder,
            database_url=f"{credentials}/{connection.settings_dict['NAME']}",
            redis_url=os.environ["REDIS_URL"],
            settings={name: os.environ[name] for name in ("SECRET_KEY", "OOLONG_DATA_DIR", "ALLOWED_HOSTS")},
        )
        self.node = Node(
            self.url, self.agent_data, "test", slots=1, node_python=self.folder / "node-python", token=""
        )

    @property
    def port(self) -> int:
        return self.plane.port

    @property
    def url(self) -> str:
        return self.plane.url

    @property
    def agent_data(self) -> Path:
        return self.plane.agent_data

    def client(self) -> httpx.Client:
        return self.plane.client(self.token)

    def environment(self) -> dict[str, str]:
        return self.plane.environment()

    def start(self, name: str) -> None:
        """web, worker, beat or agent."""
        if name == "agent":
            self.node.start()
        else:
            self.plane.start_part(name)

    def kill(self, name: str) -> None:
        """SIGKILL: nothing is flushed, no transaction ends in order."""
        if name == "agent":
            self.node.kill_agent()
        else:
            self.plane.kill_part(name)

    def close(self) -> None:
        for name in list(self.plane.processes):
            self.kill(name)
        self.node.kill()

    def wait_for_web(self) -> None:
        self.plane.wait_for_web()

    def wait(self, ready: Callable[[], bool], *, seconds: float, what: str) -> None:
        until(ready, seconds=seconds, what=what, said=self.said)

    def said(self) -> str:
        """The last lines of every process's log."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs)


def prepare(folder: Path) -> Stack:
    """A stack over the test's database with a project, a token, and an agent whose trainer is `quick_writer`."""
    stack = Stack(folder)
    stack.plane.keep_ports_apart()
    project = accounts.init_embedded()
    user = project.memberships.get().user
    stack.token = accounts.create_token(user=user, project=project, name="test", scopes=["*"])[1]
    stack.node.token = create_join_token(default_pool(), now=clock.now())[0]
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
    mapping = {"prompt_column": "q", "answer_column": "a", "completion_column": "c"}
    (stack.folder / "d.jsonl").write_text(rows)
    with Client(stack.url, stack.token) as oolong, ThreadPoolExecutor(1) as beside:
        upload = beside.submit(
            oolong.datasets.upload,
            stack.folder / "d.jsonl",
            name="numbers",
            mapping=mapping,
            timeout_seconds=180,
        )
        while not upload.done():  # the worker's duty: there is none here
            advance_validations(now=clock.now())
            wait([upload], timeout=0.2)
        version = upload.result()
    with stack.client() as client:
        spec = tiny_spec({
            "kind": "sft", "name": "writes quickly", "model": {"base_model": _model(stack)},
            "dataset": {"version": version.id}, "sft": {"steps": steps, "validation_split": None},
            "notes": str(pause_seconds),
        })  # fmt: skip
        return str(_made(client.post("/runs", json={"spec": spec}))["id"])


def _model(stack: Stack) -> str:
    """As if the node had looked at it; its trainer looks into no model."""
    project = Project.objects.get()
    user = project.memberships.get().user
    path = str(stack.folder / "model")
    made = BaseModel.objects.create(
        project=project, created_by=user, name="tiny", source="path", path=path, number=1
    )
    return str(made.pk)


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
