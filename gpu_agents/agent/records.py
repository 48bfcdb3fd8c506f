"""What an agent writes down so that its own death changes nothing: the node's credential, one record per job."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import msgspec

from gpu_agents.agent.settings import DataDirectory
from oolong.contracts.agent import DesiredAttempt
from oolong.contracts.lifecycle import EndReason, JobKind


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """Who this node is to its control plane."""

    server: str
    node_id: str
    credential: str
    heartbeat_seconds: float
    orphan_ttl_seconds: float


class JobRecord(msgspec.Struct, kw_only=True):
    """One job that this node was ever told to run, until the server acknowledges its end."""

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
    failed_starts: int = 0  # incarnations before this one that ended without having served, in a row
    stop_sent_at: float | None = None
    kill_sent_at: float | None = None
    shut_down: bool = False  # ended because this node was shut down, not because anyone stopped the run
    # Set once, when nothing more will be started for this job:
    ended: bool = False
    exit_code: int | None = None
    reason: EndReason | None = None
    message: str = ""


class SupervisorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Written by a job's supervisor; pids are valid only under the same boot id and start time."""

    job_id: str
    incarnation: int
    directory: str
    boot_id: str
    pid: int
    start_time: int | None
    job_pid: int
    job_start_time: int | None
    pgid: int


class ExitRecord(msgspec.Struct, frozen=True, kw_only=True):
    code: int  # negative: ended by that signal
    at: float
    cause: str = ""  # "" by itself, stopped, killed, orphaned, supervisor_lost


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

    def forget(self, job_id: str) -> None:
        del self.jobs[job_id]
        self._data.job_record(job_id).unlink(missing_ok=True)
        self._data.supervisor(job_id).unlink(missing_ok=True)


def read_desired(data: DataDirectory) -> list[DesiredAttempt] | None:
    """The last desired state this node was given; None when it never had one."""
    return read_json(data.desired, list[DesiredAttempt]) if data.desired.exists() else None


T = TypeVar("T")


def read_json(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is damaged ({error}); move it away to go on without it") from error


def write_json(path: Path, value: object, *, group: int | None = None) -> None:
    """Write, fsync, rename: a reader sees the old file or the new one. Mode 0600, or 0640 for a group.

    Also in a folder that a job can write: the temporary name cannot be foreseen, and links are not followed.
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
