"""Terminate every job of a data directory without an agent: to shut a node down, or after the agent was killed."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gpu_agents.agent import processes
from gpu_agents.agent.job_supervisor import KILL, STOP
from gpu_agents.agent.records import Spool, SupervisorRecord, read_json
from gpu_agents.agent.settings import DataDirectory
from oolong.system.process_handle import ProcessHandle, wait_exited

KILL_SECONDS = 5.0


@dataclass(frozen=True)
class Terminated:
    stopped: int  # exited after SIGTERM
    killed: int  # killed, or without a supervisor


class AgentIsRunning(Exception):
    """An agent serves this data directory and would start the jobs again."""


@contextmanager
def lock_data_directory(data: DataDirectory) -> Iterator[None]:
    """Hold the data directory's exclusive lock. Raises AgentIsRunning."""
    descriptor = os.open(data.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise AgentIsRunning(
            f"another agent serves {data.root}; stop it first, or use another --data-dir"
        ) from error
    else:
        yield
    finally:
        os.close(descriptor)


def terminate_jobs(data: DataDirectory, *, grace_seconds: float) -> Terminated:
    """Stop every supervised job; kill those that remain after the grace period.

    The jobs' records note that the node was shut down, so their runs resume elsewhere or later instead of counting
    as stopped by a user. Requires `lock_data_directory`.
    """
    spool = Spool(data)
    alive: dict[ProcessHandle, str] = {}  # supervisor -> job id
    killed = 0
    for path in sorted(data.supervisors.glob("*.json")):
        supervisor = read_json(path, SupervisorRecord)
        record = spool.jobs.get(supervisor.job_id)
        if supervisor.handle.is_alive():
            alive[supervisor.handle] = supervisor.job_id
            if record is not None and not record.ended:
                record.shut_down = True
                spool.save(record)
            supervisor.handle.signal(STOP)
        elif processes.end_marked(supervisor.job_id):
            killed += 1
    left = wait_exited(alive, timeout_seconds=grace_seconds)
    for handle in left:
        handle.signal(KILL)
    for handle in wait_exited(left, timeout_seconds=KILL_SECONDS):
        handle.signal(signal.SIGKILL)
        processes.end_marked(alive[handle])
    return Terminated(stopped=len(alive) - len(left), killed=killed + len(left))
