"""A pool whose only nodes are jobs of a real Slurm: slurmctld, slurmd, sbatch, real agents, real runs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from oolong.client import Client
from oolong.client.models import Attempt, Node
from tests.support import small_runs
from tests.support.control_plane import ROOT
from tests.support.slurm import SlurmCluster
from tests.support.small_runs import Inputs
from tests.support.stack import Stack, until

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1500)]

JOIN_SECONDS = 120.0


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
        words = [sys.executable, "-m", "oolong.cli", "pool", "provider", "slurm", "--interval", "1"]
        words += ["--gpus-per-node", "0", "--node-python", str(self.stack.node_python)]
        words += ["--state-dir", str(self.state), "--data-root", str(self.cluster.folder), *self.options]
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

    def wait_for_node(self, client: Client, *, other_than: str = "") -> Node:
        def joined() -> Node | None:
            assert self.process is not None and self.process.poll() is None, self.said()
            return next((node for node in client.pool.get().nodes if node.id != other_than), None)

        node = until(joined, seconds=JOIN_SECONDS, what="a Slurm job joins the pool", said=self.said)
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


def attempts(client: Client, run_id: str) -> list[Attempt]:
    return sorted(client.runs.attempts(run_id), key=lambda attempt: attempt.number)


def assert_token_is_secret(running: RunningProvider, job: str) -> None:
    file = running.state / "jobs" / job / "token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = file.read_text()
    cluster = running.cluster
    shown = [
        cluster.run("scontrol", "show", "job", "--details", job),
        cluster.run("squeue", "--format=%all"),
        cluster.run("scontrol", "write", "batch_script", job, "-"),
        *(path.read_bytes().decode(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()),
    ]  # fmt: skip
    for text in shown:
        assert token not in text
        assert running.stack.token not in text


def test_a_run_starts_because_it_waits_and_continues_after_scancel_in_another_job_and_idle_jobs_end(
    stack: Stack, inputs: Inputs, cluster: SlurmCluster
) -> None:
    client = stack.client()
    options = (
        "--cpu-slots",
        "2",
        "--max-nodes",
        "1",
        "--time",
        "60",
        "--idle-minutes",
        "0.2",
        "--account",
        "rl",
    )
    with provider(stack, cluster, *options) as running:
        run_id = client.runs.create(small_runs.spec(inputs, steps=30)).id
        first_node = running.wait_for_node(client)
        ((job, _),) = cluster.jobs().items()
        assert (first_node.provider, first_node.provider_job, first_node.partition) == ("slurm", job, "main")
        assert first_node.ends_at is not None
        assert timedelta(minutes=58) < first_node.ends_at - first_node.enrolled_at < timedelta(minutes=61)
        assert_token_is_secret(running, job)
        small_runs.wait_for_status(
            stack, client, run_id, "STARTING", "RUNNING", seconds=small_runs.BOOT_SECONDS
        )
        running.kill()
        running.start()  # finds its job again, and submits none

        until(
            lambda: (client.runs.get(run_id).latest_checkpoint or None) is not None,
            seconds=small_runs.BOOT_SECONDS, what="a stored checkpoint", said=running.said,
        )  # fmt: skip
        assert list(cluster.jobs()) == [job]
        stored = client.runs.get(run_id).latest_checkpoint
        assert stored is not None
        cluster.run("scancel", job)  # SIGTERM to every process of the job, and SIGKILL 30 s later

        second_node = running.wait_for_node(client, other_than=first_node.id)
        run = small_runs.wait_for_end(stack, client, run_id, seconds=small_runs.BOOT_SECONDS + 120)
        assert run.status == "SUCCEEDED", (run.reason, run.reason_message, running.said())
        first, second = attempts(client, run_id)
        assert first.reason == "preempted", (first.reason, first.message)
        assert second.node is not None and second.node.id == second_node.id
        resumed = stack.value(
            "SELECT c.step FROM runs_attempt a JOIN checkpoints_checkpoint c ON c.id = a.resume_checkpoint_id "
            "WHERE a.id = %s",
            second.id,
        )
        print(f"stored before scancel: step {stored.step}; resumed from step {resumed}")
        assert resumed >= stored.step
        small_runs.assert_balanced(run)
        small_runs.assert_engine_matches_trainer(run)

        until(lambda: not cluster.jobs(), seconds=60, what="the idle job ends", said=running.said)
        assert client.pool.get().nodes == []
        small_runs.assert_nothing_is_left(stack)
        assert not list(cluster.folder.glob("oolong-*")), "the agents' files are removed"
        until(lambda: not list((running.state / "jobs").iterdir()), seconds=30, what="the jobs are forgotten")


def test_a_run_leaves_its_node_with_a_checkpoint_before_the_time_limit_of_the_job(
    stack: Stack, inputs: Inputs, cluster: SlurmCluster
) -> None:
    client = stack.client()
    with provider(stack, cluster, "--cpu-slots", "1", "--max-nodes", "2", "--time", "4") as running:
        run_id = client.runs.create(small_runs.sft_spec(inputs, steps=1_000_000)).id
        small_runs.wait_for_status(stack, client, run_id, "RUNNING", seconds=small_runs.BOOT_SECONDS)
        first_node = running.wait_for_node(client)
        until(
            lambda: attempts(client, run_id)[0].ended_at is not None,
            seconds=300, what="the end of the first attempt", said=running.said,
        )  # fmt: skip
        (first, *_) = attempts(client, run_id)
        assert first.reason == "preempted", (first.reason, first.message)
        assert first.ended_at is not None and first_node.ends_at is not None
        print(f"left {(first_node.ends_at - first.ended_at).total_seconds():.0f} s before the end of its job")
        assert first.ended_at < first_node.ends_at

        second_node = running.wait_for_node(client, other_than=first_node.id)
        stored = client.runs.get(run_id).latest_checkpoint
        assert stored is not None
        until(
            lambda: len(attempts(client, run_id)) == 2 and client.runs.get(run_id).train_step > stored.step,
            seconds=small_runs.BOOT_SECONDS, what="it trains on another node", said=running.said,
        )  # fmt: skip
        assert attempts(client, run_id)[1].node.id == second_node.id
        client.runs.stop(run_id)
        run = small_runs.wait_for_end(stack, client, run_id, seconds=120)
        assert run.status == "STOPPED", (run.reason, run.reason_message, running.said())
