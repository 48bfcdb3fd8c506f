"""Agents, SDK and command against the real control plane: web, Celery worker and beat over real PostgreSQL.

The jobs are small scripts in place of trainers (tests/support/small_job.py); everything between them and the
user's terminal is real.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gpu_agents.agent import processes
from gpu_agents.agent.settings import DataDirectory
from gpu_agents.agent.terminate_jobs import terminate_jobs
from oolong.client import Client, Invalid
from oolong.client.models import Run
from oolong.contracts.attempt import read_attempt
from oolong.system.process_handle import send_signal
from tests.support import model_files
from tests.support.control_plane import ControlPlane
from tests.support.databases import new_database
from tests.support.small_jobs import ROOT, start_agent
from tests.support.tiny_specs import tiny_spec

pytestmark = pytest.mark.timeout(900)

ORPHAN_SECONDS = 600


def until(
    condition: Callable[[], object], seconds: float = 60.0, *, said: Callable[[], str] = lambda: ""
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not happen in {seconds} s\n{said()}"
        time.sleep(0.1)


class Node:
    """One machine of the pool: an agent of its own over a data directory of its own."""

    def __init__(self, folder: Path, name: str, *, slots: int = 1, peer_address: str = "") -> None:
        self.name = name
        self.slots = slots
        self.peer_address = peer_address
        self.data = DataDirectory(folder / name / "data")
        self.log = folder / f"agent-{name}.log"
        (folder / name).mkdir()
        self.agent: subprocess.Popen[bytes] | None = None

    def start(self, server: str, token: str = "") -> None:
        self.agent = start_agent(
            server, self.data.root, token=token, name=self.name, slots=self.slots,
            peer_address=self.peer_address, log=self.log,
        )  # fmt: skip

    def kill_agent(self) -> None:
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait(60)
        self.agent = None

    def lose_power(self) -> None:
        """Agent, supervisors and jobs are gone at one blow."""
        self.kill_agent()
        for path in self.data.supervisors.glob("*.json"):
            supervisor = json.loads(path.read_text())
            send_signal(supervisor["pid"], signal.SIGKILL)
            processes.end_marked(supervisor["job_id"])

    def jobs(self) -> list[Path]:
        """The oldest first, as the ids of attempts go."""
        return sorted(self.data.attempts.glob("*/jobs/*"))

    def go_on(self) -> None:
        """Let the newest job go on that holds."""
        (self.jobs()[-1] / "go").touch()

    def close(self) -> None:
        if self.agent is not None:
            self.kill_agent()
        if self.data.root.exists():
            terminate_jobs(self.data, grace_seconds=0.0)


class Pool:
    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.token = plane.token()
        self.client = Client(plane.url, self.token)
        self.folder = folder
        self.nodes: list[Node] = []
        rows = folder / "rows.jsonl"
        rows.write_text(
            "".join(json.dumps({"q": f"{n}", "a": f"{n}", "c": f"{n}"}) + "\n" for n in range(32))
        )
        mapping = {
            "prompt_column": "q",
            "answer_column": "a",
            "completion_column": "c",
            "template": "{prompt}",
        }
        self.version = self.client.datasets.upload(rows, name="numbers", mapping=mapping)
        self.model = self.client.models.upload(model_files.write(folder / "model"), name="tiny")

    def join(self, name: str, **settings: Any) -> Node:
        node = Node(self.folder, name, **settings)
        self.nodes.append(node)
        node.start(self.plane.url, self.client.pool.join_token().token)
        until(lambda: any(found.name == name for found in self.client.pool.get().nodes), said=self.said)
        return node

    def spec(self, plan: dict[str, Any], **changes: Any) -> dict[str, Any]:
        return {
            "kind": "sft",
            "name": "small job",
            "model": {"base_model": self.model.id},
            "dataset": {"version": self.version.ref},
            "sft": {"validation_split": None},
            "notes": json.dumps({"trainer": plan}),
            **changes,
        }

    def oolong(
        self, *arguments: str, token: str | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
            "OOLONG_URL": self.plane.url, "OOLONG_TOKEN": token or self.token,
        }  # fmt: skip
        return subprocess.run(
            [sys.executable, "-m", "oolong.cli", *arguments],
            env=environment, input=stdin, capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    def run(self, plan: dict[str, Any], **changes: Any) -> Run:
        return self.client.runs.create(self.spec(plan, **changes))

    def status(self, run: Run) -> str:
        return self.client.runs.get(run.id).status

    def points(self, run: Run) -> dict[int, list[int]]:
        """x of reward/mean by attempt."""
        found: dict[int, list[int]] = {}
        for series in self.client.runs.metrics(run.id, ["reward/mean"], limit=10_000).series:
            found.setdefault(series.attempt, []).extend(int(x) for x in series.x)
        return found

    def said(self) -> str:
        logs = [*self.plane.folder.glob("*.log"), *(node.log for node in self.nodes)]
        return "\n".join(
            f"--- {log.name}\n{log.read_text(errors='replace')[-2500:]}" for log in logs if log.exists()
        )

    def believes_silent(self, node: Node) -> None:
        """Have the pool believe that a node last spoke ten minutes ago, as is true of one that is dead for so long."""
        with psycopg.connect(self.plane.database_url, autocommit=True) as connection:
            connection.execute(
                "UPDATE fleet_node SET last_seen_at = now() - interval '10 minutes' "
                "WHERE name = %s AND last_seen_at > now() - interval '5 minutes'",
                [node.name],
            )

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        self.nodes.clear()


@pytest.fixture(scope="module")
def plane(
    postgres_url: str, valkey_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    database = new_database(postgres_url, "with_agents")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OOLONG_ORPHAN_SECONDS", str(ORPHAN_SECONDS))
        folder = tmp_path_factory.mktemp("plane")
        plane = ControlPlane(folder, database, f"{valkey_url.rsplit('/', 1)[0]}/5")
        plane.prepare()
        plane.start()
        yield plane
        plane.close()


@pytest.fixture(scope="module")
def pool(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    pool = Pool(plane, tmp_path_factory.mktemp("pool"))
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def node(pool: Pool) -> Node:
    return pool.join("north")


def test_a_run_goes_from_the_command_to_a_job_and_back(pool: Pool, node: Node, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(json.dumps(pool.spec({"points": 150, "checkpoint": 50})))
    created = pool.oolong("run", "create", "-f", str(tmp_path / "run.yaml"))
    assert created.returncode == 0, created.stderr
    run_id = created.stdout.strip()
    waited = pool.oolong("run", "wait", run_id, "--timeout", "240", "--assert", "reward/mean >= 0.15")
    assert waited.returncode == 0, waited.stderr + pool.said()
    assert "holds: reward/mean >= 0.15, measured 0.15" in waited.stderr

    run = pool.client.runs.get(run_id)
    assert pool.points(run) == {1: list(range(1, 151))}
    frames = list(pool.client.runs.stream(run_id, after_seq=0))
    numbers = [frame.seq for frame in frames]
    assert numbers == sorted(set(numbers)), "the stream of an ended run comes once, in order, and ends"
    assert sum(frame.type == "points" for frame in frames) == 150
    assert {"points", "status", "checkpoint"} <= {frame.type for frame in frames}
    logs = pool.oolong("run", "logs", run_id)
    assert logs.stdout.strip() == "trainer | trainer incarnation 0 of attempt 1"

    checkpoints = {item.step: item for item in pool.client.checkpoints.list(run_id=run_id)}
    final = checkpoints[150]
    assert (final.state, final.final) == ("STORED", True)
    target = pool.client.checkpoints.download(final.id, tmp_path / "final.tar")
    assert hashlib.sha256(target.read_bytes()).hexdigest() == final.tar_sha256
    with tarfile.open(target) as archive:
        manifest = archive.extractfile("MANIFEST.json")
        assert manifest is not None and hashlib.sha256(manifest.read()).hexdigest() == final.sha256

    until(lambda: not list(node.data.spool.glob("*.json")), said=pool.said)
    assert pool.client.pool.get().slots[0].state == "free"


@pytest.mark.parametrize(
    ("plan", "changes", "code"),
    [
        ({"points": 20}, {}, 0),
        ({"end": "died", "points": 5}, {"budget": {"max_attempts": 1}}, 5),
    ],
)
def test_waiting_exits_by_how_the_run_ended(
    pool: Pool, node: Node, plan: dict[str, Any], changes: dict[str, Any], code: int
) -> None:
    run = pool.run(plan, **changes)
    waited = pool.oolong("run", "wait", run.id, "--timeout", "240")
    assert waited.returncode == code, waited.stderr + pool.said()


def test_a_stopped_run_exits_7_and_an_impatient_wait_3(pool: Pool, node: Node) -> None:
    run = pool.run({})
    until(lambda: pool.status(run) == "RUNNING", said=pool.said)
    assert pool.oolong("run", "wait", run.id, "--timeout", "0.2").returncode == 3
    assert pool.oolong("run", "stop", run.id).returncode == 0
    waited = pool.oolong("run", "wait", run.id, "--timeout", "240")
    assert waited.returncode == 7, waited.stderr + pool.said()


def test_what_is_refused_says_where_and_exits_2_or_4(pool: Pool, node: Node) -> None:
    spec = pool.spec({}, rollout={"top_p": 0.9})
    refused = pool.oolong("run", "create", "-f", "-", stdin=json.dumps(spec))
    assert refused.returncode == 2
    assert "/rollout/top_p" in refused.stderr
    assert pool.oolong("run", "create", "-f", "-", "--dry-run", stdin=json.dumps(spec)).returncode == 2
    assert pool.oolong("run", "get", "run_absent").returncode == 2
    assert pool.oolong("run", "list", token="ool_wrong").returncode == 4


def test_a_model_by_its_path_is_checked_by_the_node_and_a_run_starts_from_it(pool: Pool, node: Node) -> None:
    offered = model_files.write(pool.folder / "offered")
    model = pool.client.models.register_path(str(offered), name="by-path")
    assert (model.ref, model.source, len(model.files)) == ("by-path@1", "path", 4)
    (offered / "modeling.py").write_text("import os")
    with pytest.raises(Invalid, match="is code"):
        pool.client.models.register_path(str(offered), name="by-path")
    (offered / "modeling.py").unlink()
    starts = {"model": {"base_model": "by-path@1"}}
    waited = pool.oolong("run", "wait", pool.run({"points": 2}, **starts).id, "--timeout", "240")
    assert waited.returncode == 0, waited.stderr + pool.said()
    (offered / "tokenizer.json").write_text("{}")
    run = pool.run({"points": 2}, **starts)
    pool.oolong("run", "wait", run.id, "--timeout", "240")
    ended = pool.client.runs.get(run.id)
    assert (ended.status, ended.reason) == ("FAILED", "model_invalid"), pool.said()
    assert "register it again" in ended.reason_message


def test_the_other_commands_answer(pool: Pool, node: Node) -> None:
    shown = json.loads(pool.oolong("node", "list", "--json").stdout)
    assert [found["name"] for found in shown["nodes"]] == ["north"]
    assert pool.oolong("pool", "queue").stdout == ""
    assert pool.oolong("dataset", "list").stdout.split("\t")[1:] == ["numbers", "numbers@1", "32\n"]
    models = [line.split("\t")[1] for line in pool.oolong("model", "list").stdout.splitlines()]
    assert "tiny@1" in models
    made = pool.oolong("token", "create", "--name", "ci", "--scope", "runs:read")
    assert made.returncode == 0, made.stderr
    assert pool.oolong("whoami", token=made.stdout.strip()).returncode == 0
    assert pool.oolong("dataset", "list", token=made.stdout.strip()).returncode == 4
    listed = [line.split("\t") for line in pool.oolong("token", "list").stdout.splitlines()]
    (token_id,) = [line[0] for line in listed if "ci" in line]
    assert pool.oolong("token", "revoke", token_id).returncode == 0
    assert pool.oolong("whoami", token=made.stdout.strip()).returncode == 4


def test_dataset_faults_are_named_by_row(pool: Pool, node: Node, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"q": "1", "a": "1"}\n{"q": "2"}\n')
    words = [str(tmp_path / "bad.jsonl"), "--prompt-column", "q", "--answer-column", "a"]
    for refused in (
        pool.oolong("dataset", "validate", *words),
        pool.oolong("dataset", "upload", *words, "--name", "bad"),
    ):
        assert refused.returncode == 2
        assert "line 2: no column 'a'" in refused.stdout + refused.stderr, refused.stdout + refused.stderr


@pytest.mark.timeout(1200)
def test_the_script_of_the_docs_goes_from_a_dataset_to_a_verified_checkpoint(
    pool: Pool, node: Node, tmp_path: Path
) -> None:
    """docs/ci/gate.sh as a CI would run it: one command, a token, two files."""
    rows = "".join(json.dumps({"q": f"{n}", "a": f"{n}", "c": f"{n}"}) + "\n" for n in range(40))
    (tmp_path / "sums.jsonl").write_text(rows)
    spec = pool.spec({"points": 60}, dataset={"version": "sums@latest"})
    (tmp_path / "run.yaml").write_text(json.dumps(spec))
    (tmp_path / "base.json").write_text('{"reward/mean": [0.05, 0.06, 0.07]}')

    def gate(**variables: str) -> subprocess.CompletedProcess[str]:
        commands = tmp_path / "bin"
        commands.mkdir(exist_ok=True)
        (commands / "oolong").write_text(f'#!/bin/sh\nexec {sys.executable} -m oolong.cli "$@"\n')
        (commands / "oolong").chmod(0o755)
        return subprocess.run(
            [str(ROOT / "docs" / "ci" / "gate.sh"), "sums.jsonl", "run.yaml", "candidate"],
            env={
                "PATH": f"{commands}:{os.environ['PATH']}", "HOME": str(tmp_path),
                "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "OOLONG_URL": pool.plane.url, "OOLONG_TOKEN": pool.token,
                "GATE_MAPPING": "--prompt-column q --answer-column a --completion-column c",
                "GATE_TIMEOUT": "240", "GATE_KEY": "commit-1", **variables,
            },
            cwd=tmp_path, capture_output=True, text=True, timeout=400,
        )  # fmt: skip

    asked = {
        "GATE_ASSERT": "reward/mean >= 0.06\nmean(reward/mean, 10) > 0.05",
        "GATE_COMPARE": "reward/mean",
        "GATE_BASELINE": "base.json",
    }
    done = gate(**asked)
    assert done.returncode == 0, done.stdout + done.stderr + pool.said()
    out = tmp_path / "oolong-out"
    run_id = (out / "run").read_text().strip()
    promoted = pool.client.checkpoints.resolve("candidate")
    assert (promoted.run.id, promoted.step, promoted.final) == (run_id, 60, True)
    archive = (out / "checkpoint.tar").read_bytes()
    assert hashlib.sha256(archive).hexdigest() == promoted.tar_sha256
    assert json.loads((out / "run.json").read_text())["regression"]["result"] == "pass"
    assert 'tests="4" failures="0"' in (out / "report.xml").read_text()
    assert "✅" in (out / "summary.md").read_text()

    again = gate(**{**asked, "GATE_ASSERT": "reward/mean >= 0.07", "GATE_OUT": "again"})
    assert again.returncode == 6, "the gate of the same commit, held to more"
    assert (tmp_path / "again" / "run").read_text().strip() == run_id, "the run is there already"
    assert not (tmp_path / "again" / "checkpoint.tar").exists(), "what does not pass is not promoted"

    (tmp_path / "run.yaml").write_text(json.dumps({**spec, "name": "another"}))
    refused = gate(**asked)
    assert refused.returncode == 2 and run_id in refused.stderr
    assert gate(OOLONG_TOKEN="ool_wrong").returncode == 4


def test_a_killed_agent_changes_nothing_for_its_run(pool: Pool, node: Node) -> None:
    run = pool.run({"points": 300, "holds": 50})
    until(lambda: pool.points(run).get(1), said=pool.said)
    until(lambda: all(job.pid for job in pool.client.runs.jobs(run.id)), said=pool.said)
    (before,) = pool.client.runs.jobs(run.id)
    node.kill_agent()
    node.start(pool.plane.url)
    node.go_on()
    ended = pool.client.runs.wait(run.id, timeout_seconds=240)
    assert ended.status == "SUCCEEDED", pool.said()
    (after,) = pool.client.runs.jobs(run.id)
    assert (after.pid, after.incarnation, ended.attempt_number) == (before.pid, 0, 1)
    assert pool.points(run) == {1: list(range(1, 301))}


def test_a_run_that_waits_starts_when_the_slot_is_free(pool: Pool, node: Node) -> None:
    first = pool.run({"points": 5, "holds": 1})
    until(lambda: pool.status(first) == "RUNNING", said=pool.said)
    second = pool.run({"points": 5})
    waiting = pool.client.runs.get(second.id)
    assert waiting.status == "QUEUED"
    until(lambda: pool.client.runs.get(second.id).pending_reason, said=pool.said)
    assert second.id in pool.oolong("pool", "queue").stdout
    node.go_on()
    assert pool.client.runs.wait(second.id, timeout_seconds=240).status == "SUCCEEDED"
    assert pool.status(first) in ("FINALIZING", "SUCCEEDED")


def test_the_node_of_the_trainer_is_lost_and_the_run_resumes_on_the_other(pool: Pool, node: Node) -> None:
    """Two data directories with no common path: the checkpoint travels through the store."""
    run = pool.run({"points": 400, "checkpoint": 40, "holds": 100})
    until(
        lambda: any(item.state == "STORED" for item in pool.client.checkpoints.list(run_id=run.id)),
        said=pool.said,
    )
    other = pool.join("south")
    (attempt,) = pool.client.runs.attempts(run.id)
    assert attempt.node is not None and attempt.node.name == "north"
    node.lose_power()

    def has_moved() -> bool:
        pool.believes_silent(node)  # again, for a last heartbeat may still have been on its way
        return len(list(pool.client.runs.attempts(run.id))) == 2

    until(has_moved, 180.0, said=pool.said)
    ended = pool.client.runs.wait(run.id, timeout_seconds=240)
    assert ended.status == "SUCCEEDED", pool.said()

    attempts = sorted(pool.client.runs.attempts(run.id), key=lambda found: found.number)
    assert [found.node.name for found in attempts if found.node] == ["north", "south"]
    assert attempts[0].reason == "node_lost"
    points = pool.points(run)
    begin = min(points[2])
    assert points[2] == list(range(begin, 401))
    assert begin % 40 == 1 and begin > 1, "attempt 2 continues after a stored checkpoint"
    assert set(points[1]) | set(points[2]) == set(range(1, 401))
    (job,) = other.jobs()
    attempt_file = json.loads((job.parents[1] / "attempt.json").read_text())
    assert Path(attempt_file["resume_directory"]).is_relative_to(other.data.root)
    assert str(node.data.root) not in json.dumps(attempt_file)


def test_a_node_is_revoked_its_agent_ends_and_the_run_goes_on_on_another(
    pool: Pool, plane: ControlPlane
) -> None:
    others = [found.id for found in pool.client.pool.get().nodes]
    for other in others:
        pool.client.pool.cordon(other)
    west = pool.join("west")
    run = pool.run({"points": 400, "checkpoint": 40, "holds": 100})
    until(
        lambda: any(item.state == "STORED" for item in pool.client.checkpoints.list(run_id=run.id)),
        said=pool.said,
    )
    (job,) = pool.client.runs.jobs(run.id)
    pool.join("east")
    (found,) = [node for node in pool.client.pool.get().nodes if node.name == "west"]
    done = pool.oolong("node", "revoke", found.id)
    assert done.returncode == 0, done.stderr
    assert west.agent is not None
    assert west.agent.wait(60) == 3, pool.said()
    west.agent = None
    assert "a pool admin revoked the credential of node" in west.log.read_text()
    assert processes.marked(job.id) == [], "nothing of the run is left on the node"
    assert not west.data.node.exists()

    ended = pool.client.runs.wait(run.id, timeout_seconds=240)
    assert ended.status == "SUCCEEDED", pool.said()
    attempts = sorted(pool.client.runs.attempts(run.id), key=lambda found: found.number)
    assert [found.node.name for found in attempts if found.node] == ["west", "east"]
    assert attempts[0].reason == "node_revoked"
    begin = min(pool.points(run)[2])
    assert begin % 40 == 1 and begin > 1, "attempt 2 continues after a stored checkpoint"

    west.start(plane.url, pool.client.pool.join_token().token)
    until(
        lambda: (
            [node.id for node in pool.client.pool.get().nodes if node.name == "west"] not in ([], [found.id])
        ),
        said=pool.said,
    )
    for other in others:
        pool.client.pool.uncordon(other)


def test_an_engine_joins_on_another_node_fetches_the_weights_and_its_loss_costs_the_run_nothing(
    pool: Pool,
) -> None:
    """Two agents, at addresses of their own and without a common path. The jobs are scripts, the transport is real."""
    home = pool.join("home", slots=2, peer_address="127.0.0.2")
    away = pool.join("away", slots=1, peer_address="127.0.0.3")
    plan = {"controller": {"publishes": True}, "rollout-1": {"fetches": True}, "trainer": {}}
    spec = tiny_spec(pool.spec({}, kind="rl", reward={"name": "exact_match"}, notes=json.dumps(plan)))
    del spec["sft"]
    run = pool.client.runs.create(spec)
    until(lambda: pool.status(run) == "RUNNING", said=pool.said)
    pool.client.runs.change(run.id, changes={"rollout": {"engines": 2}})

    def fetched() -> list[str]:
        notes = [event for event in pool.client.runs.events(run.id) if event.kind == "fetched"]
        return [note.message.removeprefix("rollout-1: ") for note in notes]

    until(lambda: fetched(), said=pool.said)
    directory, sha256 = fetched()[0].rsplit(" ", 1)
    published = next(home.data.attempts.glob("*/weights/v00000001/model.safetensors"))
    assert sha256 == hashlib.sha256(published.read_bytes()).hexdigest()
    assert Path(directory).is_relative_to(away.data.root)
    (attempt_file,) = away.data.attempts.glob("*/attempt.json")
    assert str(home.data.root) not in attempt_file.read_text()
    assert "PRIVATE KEY" not in attempt_file.read_text()

    away.lose_power()

    def is_missed() -> bool:
        pool.believes_silent(away)
        return "ENGINES_UNRESPONSIVE" in pool.client.runs.get(run.id).conditions

    until(is_missed, 120.0, said=pool.said)
    assert pool.status(run) == "RUNNING"
    away.start(pool.plane.url)  # the machine is back: its agent restarts the engine, which fetches again
    until(lambda: len(fetched()) == 2, said=pool.said)
    until(lambda: pool.client.runs.get(run.id).conditions == [], said=pool.said)
    seen = pool.client.runs.get(run.id)
    assert (seen.status, seen.attempt_number) == ("RUNNING", 1)
    pool.client.runs.cancel(run.id)
    assert pool.client.runs.wait(run.id, timeout_seconds=120).status == "STOPPED"


def test_the_loss_of_one_node_of_a_trainer_is_a_new_attempt_from_the_last_checkpoint(pool: Pool) -> None:
    """Three agents at addresses of their own: a trainer of three ranks is on two of them, because none has three slots.
    The jobs are scripts; tests/faults has real ranks."""
    nodes = {node.name: node for node in pool.nodes if node.name in ("home", "away")}
    spare = pool.join("spare", slots=1, peer_address="127.0.0.4")
    ranks = {"points": 400, "checkpoint": 40, "holds": 100}
    spec = pool.spec(
        {}, trainer={"num_ranks": 3}, placement={"nodes": 2},
        notes=json.dumps({"trainer": ranks, "trainer-1": ranks}),
    )  # fmt: skip
    run = pool.client.runs.create(spec)
    until(
        lambda: any(item.state == "STORED" for item in pool.client.checkpoints.list(run_id=run.id)),
        said=pool.said,
    )
    placed = {job.name: job.node.name for job in pool.client.runs.jobs(run.id)}
    assert placed == {"trainer": "home", "trainer-1": "away"}
    (attempt,) = pool.client.runs.attempts(run.id)
    files = {
        name: read_attempt(node.data.attempt(attempt.id) / "attempt.json") for name, node in nodes.items()
    }
    gangs = {name: file.gang for name, file in files.items()}
    assert gangs["home"] is not None and gangs["away"] is not None
    assert (gangs["home"].node_rank, gangs["away"].node_rank) == (0, 1)
    assert gangs["away"].address == gangs["home"].address == "127.0.0.2"
    assert gangs["away"].port == gangs["home"].port

    nodes["away"].lose_power()

    def has_moved() -> bool:
        pool.believes_silent(nodes["away"])
        return len(list(pool.client.runs.attempts(run.id))) == 2

    until(has_moved, 180.0, said=pool.said)
    ended = pool.client.runs.wait(run.id, timeout_seconds=240)
    assert ended.status == "SUCCEEDED", pool.said()
    attempts = sorted(pool.client.runs.attempts(run.id), key=lambda found: found.number)
    assert attempts[0].reason == "node_lost"
    second = read_attempt(spare.data.attempt(attempts[1].id) / "attempt.json")
    assert second.gang is not None and second.gang.node_rank == 1 and second.epoch > files["home"].epoch
    assert second.resume_directory is not None
    assert Path(second.resume_directory).is_relative_to(spare.data.root), "each node fetches the checkpoint"
    nodes["away"].start(pool.plane.url)  # the machine is back, and nothing of the old epoch starts there

    def slots_are_free() -> bool:
        return all(slot.state == "free" for slot in pool.client.pool.get().slots if slot.node == "away")

    until(slots_are_free, said=pool.said)
