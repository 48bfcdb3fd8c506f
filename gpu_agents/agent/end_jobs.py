"""Ending every job of a data directory without an agent: for shutting a node down, or after the agent was killed."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gpu_agents.agent import processes
from gpu_agents.agent.job_supervisor import KILL, STOP
from gpu_agents.agent.node_jobs import supervisor_is_alive
from gpu_agents.agent.records import Spool, SupervisorRecord, read_json
from gpu_agents.agent.settings import DataDirectory

KILL_SECONDS = 5.0


@dataclass(frozen=True)
class Ended:
    stopped: int  # ended after a polite request
    killed: int  # had to be killed, or had lost their supervisor


class AgentIsRunning(Exception):
    """An agent serves this data directory and would start the jobs again."""


@contextmanager
def serving(data: DataDirectory) -> Iterator[None]:
    """Be the only one who acts on a data directory. Raises AgentIsRunning."""
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


def end_jobs(data: DataDirectory, *, grace_seconds: float) -> Ended:
    """Ask every supervised job to stop, kill what is left after the grace period.

    The jobs' records say that the node was shut down, so their runs go on elsewhere or later, and are not
    taken for stopped by a user. Call it only while `serving` the data directory.
    """
    spool = Spool(data)
    alive: dict[str, SupervisorRecord] = {}
    killed = 0
    for path in sorted(data.supervisors.glob("*.json")):
        supervisor = read_json(path, SupervisorRecord)
        record = spool.jobs.get(supervisor.job_id)
        if supervisor_is_alive(supervisor):
            alive[supervisor.job_id] = supervisor
            if record is not None and not record.ended:
                record.shut_down = True
                spool.save(record)
            processes.send(supervisor.pid, STOP)
        elif processes.end_marked(supervisor.job_id):
            killed += 1
    left = _wait(list(alive.values()), grace_seconds)
    for supervisor in left:
        processes.send(supervisor.pid, KILL)
    for supervisor in _wait(left, KILL_SECONDS):
        processes.send(supervisor.pid, signal.SIGKILL)
        processes.end_marked(supervisor.job_id)
    return Ended(stopped=len(alive) - len(left), killed=killed + len(left))


def _wait(supervisors: list[SupervisorRecord], seconds: float) -> list[SupervisorRecord]:
    """Those that are still alive after at most that long."""
    deadline = time.monotonic() + seconds
    while True:
        supervisors = [supervisor for supervisor in supervisors if supervisor_is_alive(supervisor)]
        if not supervisors or time.monotonic() >= deadline:
            return supervisors
        time.sleep(0.05)
