"""What the provider decides on, and what it decides: plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True)
class QueuedRun:
    key: str  # the same in the next poll
    name: str
    slots: int
    device: str  # cuda | cpu; "": any
    code: str | None  # why it waits (WAIT_CODES of the API); None: no plan has seen it yet


@dataclass(frozen=True)
class PoolNode:
    id: str
    name: str
    job: str  # ID of its Slurm job
    status: str
    free_slots: int
    all_free: bool
    enrolled_at: datetime
    last_seen_at: datetime


@dataclass(frozen=True)
class SlurmJob:
    id: str
    state: str  # PENDING, RUNNING, COMPLETING, …


@dataclass(frozen=True)
class Limits:
    max_nodes: int  # Slurm jobs at once, pending ones included
    slots: int  # of a node
    device: str  # cuda | cpu


@dataclass(frozen=True)
class Situation:
    """One poll. `jobs` are the provider's own that Slurm lists; `own` are IDs of all jobs that it has submitted."""

    queue: Sequence[QueuedRun]
    nodes: Sequence[PoolNode]
    jobs: Sequence[SlurmJob]
    own: frozenset[str]
    unsuitable: frozenset[str]  # keys of runs that a node of this provider did not fit before
    now: datetime


@dataclass(frozen=True)
class Plan:
    submit: int = 0  # jobs
    cancel: tuple[str, ...] = ()  # pending jobs
    remove: tuple[str, ...] = ()  # IDs of nodes whose job is gone
    admit: tuple[str, ...] = ()  # jobs that run and wait for a join token, or have used theirs
    forget: tuple[str, ...] = ()  # jobs that are gone, with their nodes
    unsuitable: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()  # why runs get no job


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """How agents are started."""

    server: str
    python: Path  # with Oolong's agent
    node_python: str  # with torch and sglang
    slots: int
    device: str
    slots_per_gpu: int
    idle_minutes: float
    data_root: str  # on the machine of the job; "": $TMPDIR, or /tmp
    agent_arguments: tuple[str, ...] = ()
