"""A pool whose only nodes are jobs of a real Slurm: slurmctld, slurmd, sbatch, real agents, a real control plane.

The jobs of runs are small scripts in place of trainers (tests/support/small_job.py)."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oolong.client import Client
from oolong.client.models import Attempt, Node, Run
from tests.support import model_files, small_runs
from tests.support.control_plane import ROOT
from tests.support.slurm import SlurmCluster
from tests.support.small_job_agent import write_python
from tests.support.stack import Stack, until

pytestmark = pytest.mark.timeout(900)

JOIN_SECONDS = 180.0
RUN_SECONDS = 300.0


@dataclass
class RunningProvider:
    """`oolong pool provider slurm` as a process of its own."""

    stack: Stack
    cluster: SlurmCluster
    options: tuple[str, ...]
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def state(self) -> Path:
        return self.cluster.folder / "provider"

    def start(self) -> None:
        python = write_python(self.cluster.folder / "python")
        words = [sys.executable, "-m", "oolong.cli", "pool", "provider", "slurm", "--interval", "1"]
        words += [
            "--gpus-per-node",
            "0",
            "--cpu-slots",
            "1",
            "--python",
            str(python),
            "--node-python",
            sys.executable,
        ]
        words += ["--state-dir", str(self.state), "--data-root", str(self.cluster.folder)]
        words += ["--agent-arg=--job-path", f"--agent-arg={ROOT / 'tests'}", *self.options]
        environment = self.cluster.environment() | {
            "OOLONG_URL": self.stack.plane.url, "OOLONG_TOKEN": self.stack.token, "HOME": str(self.cluster.folder),
            "PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        with (self.cluster.folder / "provider.log").open("ab") as log:
            self.process = subprocess.Popen(
                words, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=60)

    def said(self) -> str:
        return self.stack.said() + self.cluster.said()

    def wait_for(self, condition: Callable[[], Any], what: str, *, seconds: float = RUN_SECONDS) -> Any:
        def holds() -> Any:
            assert self.process is not None and self.process.poll() is None, self.said()
            return condition()

        return until(holds, seconds=seconds, what=what, said=self.said)

    def wait_for_node(self, client: Client, *, other_than: str = "") -> Node:
        node = self.wait_for(
            lambda: next((node for node in client.pool.get().nodes if node.id != other_than), None),
            "a Slurm job joins the pool",
            seconds=JOIN_SECONDS,
        )
        assert isinstance(node, Node)
        return node


@contextmanager
def provider(stack: Stack, cluster: SlurmCluster, *options: str) -> Iterator[RunningProvider]:
    running = RunningProvider(stack, cluster, options)
    running.start()
    try:
        yield running
    finally:
        running.kill()


def submit(stack: Stack, client: Client, plan: dict[str, Any]) -> Run:
    """A run whose trainer does what the plan says."""
    rows = stack.folder / "rows.jsonl"
    rows.write_text("".join(json.dumps({"q": f"{n}", "a": f"{n}", "c": f"{n}"}) + "\n" for n in range(32)))
    mapping = {"prompt_column": "q", "answer_column": "a", "completion_column": "c", "template": "{prompt}"}
    version = client.datasets.upload(rows, name="numbers", mapping=mapping)
    model = client.models.upload(model_files.write(stack.folder / "model"), name="tiny")
    return client.runs.create({
        "kind": "sft", "name": "small job", "model": {"base_model": model.id}, "dataset": {"version": version.ref},
        "sft": {"validation_split": None}, "notes": json.dumps({"trainer": plan}),
    })  # fmt: skip


def attempts(client: Client, run_id: str) -> list[Attempt]:
    return sorted(client.runs.attempts(run_id), key=lambda attempt: attempt.number)


def points(client: Client, run_id: str) -> dict[int, list[int]]:
    """Steps by attempt."""
    found: dict[int, list[int]] = {}
    for series in client.runs.metrics(run_id, ["reward/mean"], limit=10_000).series:
        found.setdefault(series.attempt, []).extend(int(x) for x in series.x)
    return found


def assert_no_step_is_lost(client: Client, run_id: str, last: int) -> None:
    """The second attempt continues from the newest checkpoint of the first, which was stored after its last steps."""
    steps = points(client, run_id)
    assert sorted(steps) == [1, 2]
    assert steps[1] == list(range(1, steps[1][-1] + 1))
    assert steps[2] == list(range(steps[2][0], last + 1))
    stored = [item.step for item in client.checkpoints.list(run_id=run_id) if item.attempt_number == 1]
    assert steps[2][0] == max(stored) + 1
    assert 0 <= steps[1][-1] - max(stored) < 10, "the checkpoint before the stop is uploaded"


def assert_token_is_secret(running: RunningProvider, job: str) -> None:
    file = running.state / "jobs" / job / "token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = file.read_text()
    assert len(token) > 20
    cluster = running.cluster
    shown = [
        cluster.run("scontrol", "show", "job", "--details", job),
        cluster.run("squeue", "--format=%all"),
        cluster.run("scontrol", "write", "batch_script", job, "-"),
    ]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            shown.append((process / "cmdline").read_bytes().decode(errors="replace"))
            shown.append((process / "environ").read_bytes().decode(errors="replace"))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended
    assert not [text for text in shown if token in text]
    agents = [text for text in shown if f"SLURM_JOB_ID={job}\0" in text]
    assert agents and not [text for text in agents if running.stack.token in text]


def test_a_waiting_run_gets_a_job_survives_scancel_in_another_one_and_idle_jobs_end(
    stack: Stack, cluster: SlurmCluster
) -> None:
    client, last = stack.client(), 400
    options = ("--max-nodes", "1", "--time", "60", "--idle-minutes", "0.2", "--account", "rl")
    with provider(stack, cluster, *options) as running:
        began = time.monotonic()
        run = submit(stack, client, {"points": last, "every": 0.1, "checkpoint": 10})
        first_node = running.wait_for_node(client)
        print(f"joined {time.monotonic() - began:.0f} s after the run was submitted")
        ((job, _),) = cluster.jobs().items()
        shown = (first_node.provider, first_node.provider_job, first_node.partition, first_node.account)
        assert shown == ("slurm", job, "main", "rl")
        assert first_node.ends_at is not None
        assert timedelta(minutes=55) < first_node.ends_at - first_node.enrolled_at < timedelta(minutes=61)
        assert_token_is_secret(running, job)
        running.kill()
        running.start()  # finds its job again, and submits none

        running.wait_for(lambda: client.runs.get(run.id).latest_checkpoint, "a stored checkpoint")
        assert list(cluster.jobs()) == [job]
        began = time.monotonic()
        cluster.run("scancel", job)  # SIGTERM to every process of the job, and SIGKILL 30 s later
        running.wait_for(lambda: job not in cluster.jobs(), "the canceled job ends", seconds=60)
        print(f"the canceled job ended after {time.monotonic() - began:.0f} s")

        second_node = running.wait_for_node(client, other_than=first_node.id)
        ended = small_runs.wait_for_end(stack, client, run.id, seconds=RUN_SECONDS)
        assert ended.status == "SUCCEEDED", (ended.reason, ended.reason_message, running.said())
        first, second = attempts(client, run.id)
        assert first.reason == "preempted", (first.reason, first.message)
        assert second.node is not None and second.node.id == second_node.id
        assert_no_step_is_lost(client, run.id, last)

        began = time.monotonic()
        running.wait_for(lambda: not cluster.jobs(), "the idle job ends", seconds=90)
        print(f"the idle job ended {time.monotonic() - began:.0f} s after the run")
        assert client.pool.get().nodes == []
        small_runs.assert_nothing_is_left(stack)
        assert not list(cluster.folder.glob("oolong-*")), "the agents' files are removed"
        running.wait_for(
            lambda: not list((running.state / "jobs").iterdir()), "the jobs are forgotten", seconds=30
        )


def test_a_run_leaves_its_node_with_a_checkpoint_before_the_time_limit_of_the_job(
    stack: Stack, cluster: SlurmCluster
) -> None:
    client, last = stack.client(), 300
    with provider(stack, cluster, "--max-nodes", "2", "--time", "3", "--idle-minutes", "5") as running:
        run = submit(stack, client, {"points": last, "every": 0.6, "checkpoint": 2})
        first_node = running.wait_for_node(client)
        ended = small_runs.wait_for_end(stack, client, run.id, seconds=2 * RUN_SECONDS)
        assert ended.status == "SUCCEEDED", (ended.reason, ended.reason_message, running.said())
        first, second = attempts(client, run.id)
        assert first.reason == "preempted", (first.reason, first.message)
        assert first.ended_at is not None and first_node.ends_at is not None
        left = (first_node.ends_at - first.ended_at).total_seconds()
        print(f"left {left:.0f} s before the end of its Slurm job")
        assert left > 0
        assert second.node is not None and second.node.id != first_node.id
        assert_no_step_is_lost(client, run.id, last)
