"""The agent's state on disk: the node's credential and one record per job."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import msgspec

from gpu_agents.agent.settings import DataDirectory
from oolong.contracts.agent import DesiredAttempt
from oolong.contracts.lifecycle import EndReason, JobKind
from oolong.system.process_handle import ProcessHandle


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """The node's identity and settings from the control plane."""

    server: str
    node_id: str
    credential: str
    heartbeat_seconds: float
    orphan_ttl_seconds: float


class JobRecord(msgspec.Struct, kw_only=True):
    """One job of this node, kept until the server acknowledges its end."""

    job_id: str
    run_id: str
    attempt_id: str
    epoch: int
    name: str
    kind: JobKind
    index: int
    slots: list[str]
    grace_seconds: float
    engine_port: int = 0  # of an engine that joined a live attempt
    session_port: int = 0
    evaluates: str = ""
    incarnation: int = 0  # restarts in place so far
    restarted_at: list[float] = []  # unix seconds of those restarts
    failed_starts: int = 0  # consecutive earlier incarnations that never became ready
    stop_sent_at: float | None = None
    kill_sent_at: float | None = None
    shut_down: bool = False  # the node was shut down; no user stopped the run
    # Set once, in the final state:
    ended: bool = False
    exit_code: int | None = None
    reason: EndReason | None = None
    message: str = ""


class SupervisorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Written by a job's supervisor. Its pids may have been reused."""

    job_id: str
    incarnation: int
    directory: str
    boot_id: str
    pid: int
    start_ticks: int
    job_pid: int
    pgid: int

    @property
    def handle(self) -> ProcessHandle:
        """The supervisor's process."""
        return ProcessHandle(self.pid, self.start_ticks, self.boot_id)


class ExitRecord(msgspec.Struct, frozen=True, kw_only=True):
    code: int  # negative: ended by that signal
    at: float
    cause: str = ""  # "" exited by itself, stopped, killed, orphaned, supervisor_lost


class Spool:
    """The job records of a data directory, in memory and on disk."""

    def __init__(self, data: DataDirectory) -> None:
        self._data = data
        self.jobs: dict[str, JobRecord] = {
            record.job_id: record
            for record in (read_json(path, JobRecord) for path in sorted(data.spool.glob("*.json")))
        }

    def save(self, record: JobRecord) -> None:
        self.jobs[record.job_id] = record
        write_json(self._data.job_record(record.job_id), record)

    def remove(self, job_id: str) -> None:
        del self.jobs[job_id]
        self._data.job_record(job_id).unlink(missing_ok=True)
        self._data.supervisor(job_id).unlink(missing_ok=True)


def read_desired(data: DataDirectory) -> list[DesiredAttempt] | None:
    """The last received desired state; None before the first."""
    return read_json(data.desired, list[DesiredAttempt]) if data.desired.exists() else None


T = TypeVar("T")


def read_json(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is damaged ({error}); move it away to continue without it") from error


def write_json(path: Path, value: object, *, group: int | None = None) -> None:
    """Replace a file atomically. Mode 0600, or 0640 for a group.

    Safe in directories that a job can write: the temporary name is unpredictable, and links are not followed.
    """
    temporary = path.with_name(f"{path.name}.{token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if group is not None:
            os.fchown(descriptor, -1, group)
            os.fchmod(descriptor, 0o640)
        file.write(msgspec.json.encode(value))
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
