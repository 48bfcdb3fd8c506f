"""One poll of the provider: read the pool and Slurm, decide, act."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from oolong.cli.slurm.batch_script import batch_script
from oolong.cli.slurm.cluster import Cluster
from oolong.cli.slurm.plan import plan
from oolong.cli.slurm.types import JobOptions, Limits, Plan, PoolNode, QueuedRun, Situation
from oolong.client import Client, NotFound
from oolong.client.models import Pool

TOKEN_LIFE_SECONDS = 600.0  # a join token is replaced before it expires


class ProviderIsRunning(Exception):
    """Another provider works with the same folder."""


@dataclass
class State:
    """The provider's folder, which compute nodes see too: one folder per job that it has submitted, and their logs."""

    root: Path

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder and hold its lock. Raises ProviderIsRunning."""
        for folder in (self.root, self.jobs, self.logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.root / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ProviderIsRunning(
                    f"another provider works with {self.root}; stop it first, or use another --state-dir"
                ) from error
            yield

    def own(self) -> frozenset[str]:
        return frozenset(path.name for path in self.jobs.iterdir()) if self.jobs.exists() else frozenset()

    def needs_token(self, job: str) -> bool:
        token = self.jobs / job / "token"
        return not token.exists() or time.time() - token.stat().st_mtime > TOKEN_LIFE_SECONDS

    def add(self, job: str) -> None:
        (self.jobs / job).mkdir(mode=0o700, exist_ok=True)

    def write_token(self, job: str, token: str) -> None:
        self.add(job)
        beside = self.jobs / job / "token.new"
        beside.unlink(missing_ok=True)  # left by a crash
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token)
        beside.rename(beside.with_name("token"))

    def forget(self, job: str) -> None:
        shutil.rmtree(self.jobs / job, ignore_errors=True)


@dataclass
class Provider:
    client: Client
    pool: str
    cluster: Cluster
    state: State
    limits: Limits
    options: JobOptions
    sbatch_arguments: Sequence[str]
    note: Callable[[str], None]
    unsuitable: frozenset[str] = frozenset()
    _noted: frozenset[str] = field(default=frozenset(), init=False)

    def look(self) -> Plan:
        """What to do now."""
        jobs = self.cluster.jobs()  # before the pool: a job that ends in between still has its node
        found = self.client.pool.get(self.pool)
        situation = Situation(
            queue=queue_of(found),
            nodes=nodes_of(found),
            jobs=jobs,
            own=self.state.own() | {job.id for job in jobs},
            unsuitable=self.unsuitable,
            now=datetime.now(UTC),
        )
        return plan(situation, self.limits)

    def act(self, decided: Plan) -> None:
        self.unsuitable = decided.unsuitable
        for line in decided.notes:
            if line not in self._noted:  # once, and again after it was away
                self.note(line)
        self._noted = frozenset(decided.notes)
        for job in decided.admit:
            if self.state.needs_token(job):
                self.state.write_token(job, self.client.pool.join_token(self.pool).token)
                self.note(f"Slurm job {job} runs and has a join token")
        for node in decided.remove:
            try:
                self.client.pool.revoke(node)
                self.note(f"node {node} is removed: its Slurm job is gone")
            except NotFound:  # it has left by itself
                pass
        for job in decided.forget:
            self.state.forget(job)
        for job in decided.cancel:
            self.cluster.cancel(job)
            self.note(f"Slurm job {job} is canceled: it had not started, and nothing needs it any more")
        for _ in range(decided.submit):
            script = batch_script(self.options, jobs=self.state.jobs)
            job = self.cluster.submit(script, self.sbatch_arguments, log=self.state.logs / "%j.log")
            self.state.add(job)
            self.note(f"Slurm job {job} is submitted")


def queue_of(pool: Pool) -> list[QueuedRun]:
    return [
        QueuedRun(
            key=run.run_id or str(run.submitted_at), name=run.run_id or run.name, slots=run.slots_needed,
            device=run.device, code=run.code,
        )
        for run in pool.queue
    ]  # fmt: skip


def nodes_of(pool: Pool) -> list[PoolNode]:
    """The nodes that are Slurm jobs."""
    found = []
    for node in pool.nodes:
        if node.provider == "slurm":
            slots = [slot for slot in pool.slots if slot.node.id == node.id]
            free = sum(slot.state == "free" for slot in slots)
            found.append(
                PoolNode(
                    node.id, node.name, node.provider_job, node.status, free, bool(slots) and free == len(slots),
                    node.enrolled_at, node.last_seen_at,
                )
            )  # fmt: skip
    return found
