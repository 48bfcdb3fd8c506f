"""A small world for the tests of the control plane: people with tokens, simulated nodes, a clock that waits."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.test import Client

from control_plane.accounts.identity import services as accounts
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import Membership, Project, Role, Team, User
from control_plane.accounts.tokens.scopes import ROLE_SCOPES
from control_plane.assets import services as catalog
from control_plane.assets.background import processes
from control_plane.assets.background.archive_extraction import __main__ as unfolding_main
from control_plane.assets.background.dataset_ingest import __main__ as parsing_main
from control_plane.assets.background.token_statistics import __main__ as measuring_main
from control_plane.assets.base_models import model_check_services
from control_plane.assets.datasets import measurement_services, validation_services
from control_plane.assets.models import BaseModel, ModelCheck
from control_plane.core.infra import clock as clock_module
from control_plane.fleet import pools
from control_plane.fleet import services as fleet
from control_plane.fleet.models import Pool
from control_plane.fleet.web_liveness import record_alive
from control_plane.runs import telemetry_hooks
from control_plane.runs.lease_reaper import reap_leases
from control_plane.runs.models import Job
from control_plane.runs.reconciler import reconcile_runs
from control_plane.runs.scheduling import schedule_runs
from oolong.cli.app import main as cli_main
from oolong.client.sync import connection, datasets, models, runs
from oolong.contracts.agent import (
    PROTOCOL,
    HeartbeatReply,
    HeartbeatRequest,
    Inventory,
    JobIsolation,
    ObservedJob,
    OutboxOffset,
    Provider,
    SlotInventory,
)
from oolong.contracts.lifecycle import EndReason, JobState
from oolong.contracts.telemetry import CheckpointLine
from oolong.model_validation import report
from oolong.model_validation.chat_template import TemplateSource, render
from oolong.model_validation.errors import file_fault
from oolong.model_validation.rendering import CONVERSATION, Preview
from oolong.sandbox import SandboxUnsupported
from tests.support.table_copies import Copies, copy_what_is_made
from tests.support.tiny_specs import tiny_spec

MAPPING = {"prompt_column": "question", "answer_column": "answer", "split_column": "split"}
SUMS = [{"question": f"{n}+1", "answer": n + 1, "split": "train" if n < 64 else "eval"} for n in range(128)]


def validate_here() -> None:
    """Every validation that waits, in this process and without a sandbox; tests/sandbox has them as they are."""
    with pytest.MonkeyPatch.context() as patch:
        _without_processes(patch)
        for _ in range(2):  # one tick starts it, the next settles it
            validation_services.advance_validations(now=clock_module.now())


def check_models_here() -> None:
    """Every archive of a model that waits to be checked, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        _without_processes(patch)
        while ModelCheck.objects.filter(state="QUEUED").exclude(archive_sha256="").exists():
            for _ in range(2):  # one tick starts it, the next settles it
                model_check_services.advance_model_checks(now=clock_module.now())


def render_here(source: TemplateSource) -> Preview:
    asked = {"template": source.text, "special": source.special, "messages": CONVERSATION}
    found = render(asked)
    fault = file_fault(source.file, found["code"], found["message"]) if found["code"] else None
    return Preview(text=found["text"], isolation="none", fault=fault)


def ready_model(owner: Any, name: str = "tiny", path: str = "/models/tiny") -> BaseModel:
    """As if a node had looked at it."""
    return BaseModel.objects.create(
        project=owner.project, created_by=owner.user, name=name, source="path", path=path, number=1
    )


def _without_processes(patch: pytest.MonkeyPatch) -> None:
    def at_once(words: list[str], **_: Any) -> Any:
        work = {
            validation_services.MODULE: parsing_main.work,
            measurement_services.MODULE: measuring_main.work,
            model_check_services.MODULE: unfolding_main.work,
        }
        work[words[2]](Path(words[-1]))
        return SimpleNamespace(pid=0)

    def refuse(**_: Any) -> Any:
        raise SandboxUnsupported("there is none in this test")

    patch.setattr(processes, "subprocess", SimpleNamespace(Popen=at_once, DEVNULL=-3))
    patch.setattr(parsing_main, "probe_sandbox", refuse)
    patch.setattr(report, "render_preview", render_here)


class Clock:
    """The time of a test. It moves only when told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def forward(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now


def standing_clock(patch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    patch.setattr(clock_module, "now", lambda: clock.now)
    return clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return standing_clock(monkeypatch)


@dataclass
class Person:
    user: User
    project: Project
    token: str
    client: Client = field(default_factory=Client)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        return self.client.generic(
            method.upper(), f"/api/v1{path}",
            data=body if isinstance(body, bytes) else json.dumps(body) if body is not None else b"",
            content_type="application/octet-stream" if isinstance(body, bytes) else "application/json",
            headers={"authorization": f"Bearer {self.token}", **headers},
        )  # fmt: skip

    def get(self, path: str, **headers: str) -> Any:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.call("POST", path, body, **headers)

    def upload(self, data: bytes, purpose: str = "dataset") -> str:
        reply = self.post(f"/uploads?filename=file&purpose={purpose}", data)
        assert reply.status_code == 201, reply.content
        identity: str = reply.json()["id"]
        return identity

    def dataset(self, name: str = "sums", rows: list[dict[str, Any]] | None = None, **mapping: Any) -> Any:
        """A dataset with one version."""
        made = self.post("/datasets", {"name": name}).json()
        upload = self.upload(b"".join(json.dumps(row).encode() + b"\n" for row in rows or SUMS))
        return self.version(made["id"], upload, {**MAPPING, **mapping})

    def version(self, dataset_id: str, upload: str, mapping: dict[str, Any]) -> Any:
        """The answer to the validation that is refused, or to the version that is asked for after it."""
        asked = self.post("/dataset-validations", {"upload_id": upload, "mapping": mapping})
        if asked.status_code != 202:
            return asked
        validate_here()
        return self.post(f"/datasets/{dataset_id}/versions", {"validation_id": asked.json()["id"]})

    def model(self, name: str, data: bytes) -> Any:
        """A model of an archive, when its check has ended; or the refusal."""
        asked = self.post("/models", {"name": name, "upload_id": self.upload(data, "model")})
        if asked.status_code not in (200, 201):
            return asked
        check_models_here()
        return self.get(f"/models/{asked.json()['id']}")

    def spec(self, **changes: Any) -> dict[str, Any]:
        return tiny_spec({
            "kind": "rl", "name": "a run", "model": {"base_model": "tiny"}, "dataset": {"version": "sums@1"}, **changes,
        })  # fmt: skip

    def run(self, **changes: Any) -> Any:
        reply = self.post("/runs", {"spec": self.spec(**changes)})
        assert reply.status_code == 201, reply.content
        return reply.json()

    def see(self, run_id: str) -> Any:
        return self.get(f"/runs/{run_id}").json()

    def events(self, run_id: str) -> list[Any]:
        """Oldest first."""
        found: list[Any] = self.get(f"/runs/{run_id}/events?limit=200").json()["data"]
        return found[::-1]


@dataclass
class SimulatedNode:
    """An agent without processes: it speaks the real protocol, and its jobs do what the test says."""

    name: str
    slots: int
    device: str = "cpu"
    slot_memory_bytes: int = 0
    credential: str = ""
    node_id: str = ""
    boot_id: str = "boot-1"
    jobs: dict[str, ObservedJob] = field(default_factory=dict)
    reply: HeartbeatReply | None = None
    job_isolation: JobIsolation = JobIsolation.UID
    peer_address: str = ""  # where other nodes reach it
    slurm_job: str = ""  # that it is
    ends_at: datetime | None = None  # when its provider ends it
    silent_about_new: bool = False  # does not start what it is told to start
    client: Client = field(default_factory=Client)
    _one_reply: Lock = field(
        default_factory=Lock
    )  # replies that come at once are followed one after the other

    def inventory(self) -> Inventory:
        return Inventory(
            hostname=self.name, agent_version="0", boot_id=self.boot_id, cpu_count=2, memory_bytes=1, disk_free_bytes=1,
            slots=[
                SlotInventory(slot=f"{self.device}-{n}", device=self.device, memory_bytes=self.slot_memory_bytes)
                for n in range(self.slots)
            ],
            model_roots=["/models"], job_isolation=self.job_isolation,
            peer_address=self.peer_address, peer_network="rack" if self.peer_address else "",
            provider=Provider.SLURM if self.slurm_job else Provider.MANUAL, provider_job=self.slurm_job,
            partition="gpu" if self.slurm_job else "", account="rl" if self.slurm_job else "",
            ends_at=self.ends_at.timestamp() if self.ends_at else None,
        )  # fmt: skip

    def post(self, path: str, body: Any, **headers: str) -> Any:
        return self.client.post(
            f"/api/v1/agent{path}", data=body, content_type="application/json",
            headers={"authorization": f"Bearer {self.credential}", **headers},
        )  # fmt: skip

    def get(self, path: str, **headers: str) -> Any:
        return self.client.get(
            f"/api/v1/agent{path}", headers={"authorization": f"Bearer {self.credential}", **headers}
        )

    def beat(self) -> HeartbeatReply:
        """One heartbeat; then this node's jobs become what is desired: new ones start, stopped ones exit."""
        body = HeartbeatRequest(
            inventory=self.inventory(), jobs=list(self.jobs.values()), started_at=0.0, protocol=PROTOCOL
        )
        answer = self.post("/heartbeat", msgspec.json.encode(body))
        assert answer.status_code == 200, answer.content
        reply = msgspec.json.decode(answer.content, type=HeartbeatReply)
        with self._one_reply:
            self._follow(reply)
        return reply

    def _follow(self, reply: HeartbeatReply) -> None:
        self.reply = reply
        named = {}
        for attempt in reply.attempts:
            for job in attempt.jobs:
                named[job.job_id] = job
                if job.job_id not in self.jobs and self.silent_about_new:
                    continue
                if job.job_id not in self.jobs:
                    self.jobs[job.job_id] = ObservedJob(
                        job_id=job.job_id, attempt_id=attempt.attempt_id, epoch=attempt.epoch,
                        state=JobState.RUNNING, pid=1,
                    )  # fmt: skip
                if job.stop:
                    self.exit(job.job_id, EndReason.STOPPED_BY_USER)
        for job_id in list(self.jobs):
            if job_id not in named:
                if self.jobs[job_id].state != JobState.EXITED:
                    self.exit(job_id, EndReason.STOPPED_BY_USER)
                elif job_id in reply.acknowledged:
                    del self.jobs[job_id]

    def exit(
        self, job_id: str, reason: EndReason | None, *, code: int = 0, shipped: int = 10, message: str = ""
    ) -> None:
        if self.jobs[job_id].state == JobState.EXITED:
            return
        self.jobs[job_id] = msgspec.structs.replace(
            self.jobs[job_id], state=JobState.EXITED, reason=reason, exit_code=code, message=message,
            outbox=[OutboxOffset(file="main-0.jsonl", bytes=10, shipped=shipped)],
        )  # fmt: skip

    def ship_all(self) -> None:
        for job_id, job in self.jobs.items():
            self.jobs[job_id] = msgspec.structs.replace(
                job,
                outbox=[
                    OutboxOffset(file=item.file, bytes=item.bytes, shipped=item.bytes) for item in job.outbox
                ],
            )

    def job(self, name: str) -> str:
        """Id of the newest job of that name on this node."""
        found = (
            Job.objects.filter(name=name, attempt__node_id=self.node_id)
            .order_by("-attempt__number", "-pk")
            .first()
        )
        assert found is not None
        return found.pk

    def upload_checkpoint(self, attempt_id: str, epoch: int, *, step: int, final: bool = False) -> Any:
        """Announce, send one part, complete; returns the last answer."""
        data = f"checkpoint {attempt_id} {step}".encode()
        body = {
            "step": step, "manifest_sha256": hashlib.sha256(data + b"manifest").hexdigest(), "bytes": len(data),
            "tar_sha256": hashlib.sha256(data).hexdigest(), "epoch": epoch, "final": final,
        }  # fmt: skip
        announced = self.post(f"/attempts/{attempt_id}/checkpoints", json.dumps(body))
        if announced.status_code != 200:
            return announced
        upload = announced.json()["upload_id"]
        part = self.client.put(
            f"/api/v1/agent/uploads/{upload}/parts/0", data=data, content_type="application/octet-stream",
            headers={
                "authorization": f"Bearer {self.credential}", "x-part-sha256": hashlib.sha256(data).hexdigest(),
            },
        )  # fmt: skip
        assert part.status_code == 200, part.content
        return self.post(f"/uploads/{upload}/complete", b"")


def make_person(name: str, *, team: str = "red", project: str = "default", role: Role = Role.ADMIN) -> Person:
    user, _ = User.objects.get_or_create(username=name)
    team_row, _ = Team.objects.get_or_create(name=team)
    project_row, _ = Project.objects.get_or_create(team=team_row, name=project)
    Membership.objects.get_or_create(user=user, project=project_row, defaults={"role": role})
    _, token = accounts.create_token(user=user, project=project_row, name="test", scopes=["*"])
    return Person(user, project_row, token)


def make_alice() -> Person:
    """Owns a dataset `sums` with 64 train and 64 eval rows, and a model `tiny`; manages the default pool."""
    alice = make_person("alice")
    pools.appoint_admin(pools.default_pool(), alice.user)
    caller = Caller(alice.user, alice.project, Role.ADMIN, ROLE_SCOPES[Role.ADMIN])
    data = b"".join(json.dumps(row).encode() + b"\n" for row in SUMS)
    upload = catalog.take_upload(caller, io.BytesIO(data), filename="sums.jsonl", purpose="dataset")
    validation = validation_services.request_validation(caller, upload, MAPPING)
    validate_here()
    validation.refresh_from_db()
    dataset = catalog.create_dataset(caller, name="sums")
    validation_services.create_version_of(caller, dataset, validation)
    ready_model(alice)
    return alice


@pytest.fixture
def person(db: None) -> Callable[..., Person]:
    return make_person


@pytest.fixture(scope="session")
def copies_of_alice() -> list[tuple[Person, Copies]]:
    """She and what `make_alice` adds to empty tables, once a test has made her."""
    return []


@pytest.fixture
def alice(
    db: None, clock: Clock, copies_of_alice: list[tuple[Person, Copies]], tmp_path_factory: Any
) -> Person:
    if User.objects.exists() or clock.now != Clock().now:
        return make_alice()
    folder = settings.ENVIRONMENT.data_dir
    if not copies_of_alice:
        made: list[Person] = []
        copies = copy_what_is_made(
            lambda: made.append(make_alice()), folder=folder, kept=tmp_path_factory.mktemp("alice") / "store"
        )
        copies_of_alice.append((made[0], copies))
        return made[0]
    person, copies = copies_of_alice[0]
    copies.restore(folder)
    user, project = User.objects.get(pk=person.user.pk), Project.objects.get(pk=person.project.pk)
    return Person(user, project, person.token)


@pytest.fixture
def node(clock: Clock, db: None) -> Callable[..., SimulatedNode]:
    def make(name: str = "node-1", slots: int = 2, *, pool: str = "", **changes: Any) -> SimulatedNode:
        joined = Pool.objects.get(pk=pool) if pool else pools.default_pool()
        token, _ = fleet.create_join_token(joined, now=clock.now)
        node = SimulatedNode(name=name, slots=slots, **changes)
        row, node.credential = fleet.enroll(token=token, name=name, inventory=node.inventory(), now=clock.now)
        node.node_id = row.pk
        node.beat()
        return node

    return make


@pytest.fixture
def tick(clock: Clock) -> Callable[..., None]:
    """One round of the Celery ticks, `seconds` later, with the web process alive."""

    def ticks(seconds: float = 1.0, *, web_alive: bool = True) -> None:
        now = clock.forward(seconds)
        if web_alive:
            record_alive()
        reap_leases(now=now)
        reconcile_runs(now=now)
        schedule_runs(now=now)

    return ticks


@pytest.fixture
def start(alice: Person, tick: Callable[..., None]) -> Callable[..., Any]:
    """A run that runs on the given node."""

    def running(node: SimulatedNode, **changes: Any) -> Any:
        run = alice.run(**changes)
        tick()
        node.beat()
        node.beat()
        run = alice.see(run["id"])
        assert run["status"] == "RUNNING", run
        return run

    return running


@pytest.fixture
def commit_checkpoint() -> Callable[..., None]:
    """What telemetry does with a checkpoint line of the trainer."""

    def commit(run_id: str, attempt_id: str, *, step: int, final: bool = False) -> None:
        job = Job.objects.select_related("attempt__run").get(attempt_id=attempt_id, name="trainer")
        data = f"checkpoint {attempt_id} {step}".encode()
        telemetry_hooks.record_checkpoint_line(
            job,
            CheckpointLine(
                at=0.0, step=step, directory="/x", bytes=1, final=final,
                manifest_sha256=hashlib.sha256(data + b"manifest").hexdigest(),
            ),
        )  # fmt: skip

    return commit


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, settings: Any) -> None:
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, data_dir=tmp_path)


@pytest.fixture(scope="module")
def store_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For a module whose rows are made once: it asks for this in an `_own_store` of its own."""
    before = settings.ENVIRONMENT
    settings.ENVIRONMENT = dataclasses.replace(before, data_dir=tmp_path_factory.mktemp("store"))
    yield
    settings.ENVIRONMENT = before


@pytest.fixture
def quick_validations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validations in this process; a tick settles what the one before it began."""
    _without_processes(monkeypatch)


@dataclass(frozen=True)
class Done:
    """What a command printed and exited with."""

    code: int
    out: str
    err: str


@pytest.fixture
def oolong(
    alice: Person,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    quick_validations: None,
) -> Iterator[Callable[..., Done]]:
    """The `oolong` command as Alice, against this very control plane: its HTTP ends in Django, not in a socket."""
    plain, handler = httpx.Client, WSGIHandler()

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        # Around a request Django would close the connection, and with it the transaction of this test.
        for signal in (request_started, request_finished):
            signal.disconnect(close_old_connections)
        return handler(environ, start_response)

    def connected(**arguments: Any) -> httpx.Client:
        return plain(**{**arguments, "transport": arguments.get("transport") or httpx.WSGITransport(app=app)})

    def tick(seconds: float) -> None:
        validation_services.advance_validations(now=clock.now)
        measurement_services.advance_measurements(now=clock.now)
        model_check_services.advance_model_checks(now=clock.now)

    for waits in (connection, datasets, models, runs):
        monkeypatch.setattr(waits, "sleep", tick)
    for waits in (datasets, models, runs):  # here nothing moves while a request waits
        monkeypatch.setattr(waits, "LONG_POLL_SECONDS", 0)
    monkeypatch.setattr(httpx, "Client", connected)
    monkeypatch.setenv("OOLONG_URL", "http://testserver")
    monkeypatch.setenv("OOLONG_TOKEN", alice.token)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def run(*words: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["oolong", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            sys.exit(cli_main())
        said = capsys.readouterr()
        return Done(int(left.value.code or 0), said.out, said.err)

    yield run
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)
