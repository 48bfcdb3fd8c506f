"""The jobs of this node: what is seen of each, and how one is started, signalled and ended.

A job's record is on disk before it is acted on, and its supervisor lives on without the agent: so the next agent
finds here what this one has begun.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpu_agents.agent import launch, processes
from gpu_agents.agent.isolation.node import IsolationError, NodeIsolation
from gpu_agents.agent.job_supervisor import KILL, STOP
from gpu_agents.agent.launch import TEMPORARY, Command, LaunchError
from gpu_agents.agent.reconcile import Phase, Sight
from gpu_agents.agent.records import ExitRecord, JobRecord, Spool, SupervisorRecord, read_json, write_json
from gpu_agents.agent.settings import DataDirectory
from gpu_agents.agent.untrusted import Untrusted, read_below, remove_tree
from oolong.contracts.attempt import (
    ATTEMPT_FILE,
    EXIT_FILE,
    LOG_FILE,
    READY_FILE,
    RESULT_FILE,
    JobResult,
    read_attempt,
)
from oolong.contracts.lifecycle import EndReason, JobKind
from oolong.log_tail import log_tail

log = logging.getLogger(__name__)


RESULT_BYTES = 256 * 1024
MESSAGE_CHARACTERS = 4000


class NodeJobs:
    def __init__(
        self,
        data: DataDirectory,
        *,
        commands: Mapping[JobKind, Command],
        device: str,
        orphan_ttl_seconds: float,
        isolation: NodeIsolation,
    ) -> None:
        self._data = data
        self._commands = commands
        self._device = device
        self._orphan_ttl_seconds = orphan_ttl_seconds
        self._isolation = isolation
        self._spool = Spool(data)
        # Started by this process: it must reap them.
        self._supervisors: dict[str, subprocess.Popen[bytes]] = {}

    def records(self) -> list[JobRecord]:
        return list(self._spool.jobs.values())

    def knows(self, job_id: str) -> bool:
        return job_id in self._spool.jobs

    def record(self, job_id: str) -> JobRecord:
        return self._spool.jobs[job_id]

    def save(self, record: JobRecord) -> None:
        self._spool.save(record)

    def forget(self, job_id: str) -> None:
        self._spool.forget(job_id)

    # --- see

    def observe(self) -> dict[str, Sight]:
        """Every job that this node knows, as it is now."""
        for job_id in [job_id for job_id, process in self._supervisors.items() if process.poll() is not None]:
            del self._supervisors[job_id]
        return {record.job_id: self._see(record) for record in self.records()}

    def _see(self, record: JobRecord) -> Sight:
        sight = Sight(
            job_id=record.job_id,
            attempt_id=record.attempt_id,
            epoch=record.epoch,
            kind=record.kind,
            phase=Phase.ENDED,
            incarnation=record.incarnation,
            grace_seconds=record.grace_seconds,
            exit_code=record.exit_code,
            restarted_at=tuple(record.restarted_at),
            failed_starts=record.failed_starts,
            stop_sent_at=record.stop_sent_at,
            kill_sent_at=record.kill_sent_at,
            shut_down=record.shut_down,
        )
        if record.ended:
            return sight
        supervisor = self.supervisor(record)
        # Asked before the exit file: a supervisor writes that file before it ends, never after.
        alive = supervisor is not None and supervisor_is_alive(supervisor)
        directory = self._data.supervision(record.attempt_id, record.name, record.incarnation)
        if not (directory / EXIT_FILE).exists():
            if alive:
                return dataclasses.replace(sight, phase=Phase.ALIVE)
            self._bury(record, directory)
        ended = read_json(directory / EXIT_FILE, ExitRecord)
        own = self._data.job(record.attempt_id, record.name, record.incarnation)
        return dataclasses.replace(
            sight,
            phase=Phase.GONE,
            exit_code=ended.code,
            cause=ended.cause,
            verdict=_verdict(own),
            ready=_served(own),
            log_tail=log_tail(directory / LOG_FILE),
        )

    def supervisor(self, record: JobRecord) -> SupervisorRecord | None:
        path = self._data.supervisor(record.job_id)
        if not path.exists():
            return None
        supervisor = read_json(path, SupervisorRecord)
        if (
            supervisor.incarnation > record.incarnation
        ):  # an agent before this one died between starting and noting it
            record.restarted_at = [*record.restarted_at, time.time()]
            record.incarnation = supervisor.incarnation
            self._spool.save(record)
        return supervisor

    def _bury(self, record: JobRecord, directory: Path) -> None:
        """The supervisor is gone without a word (killed, or the machine was rebooted): end what it left, note it."""
        killed = processes.end_marked(record.job_id)
        log.error(
            "%s: its supervisor was lost; %d processes of the job were killed",
            record.name, killed, extra=_subjects(record),
        )  # fmt: skip
        directory.mkdir(parents=True, exist_ok=True)
        if (directory / TEMPORARY).exists():
            remove_tree(directory / TEMPORARY)
        write_json(
            directory / EXIT_FILE, ExitRecord(code=-signal.SIGKILL, at=time.time(), cause="supervisor_lost")
        )

    # --- act

    async def start(self, record: JobRecord, secrets: Mapping[str, str]) -> None:
        """Start, then note it: were it the other way round, a crash in between would lose the start.

        Starting twice is harmless (a job directory is used once), so the next agent just repeats it.
        """
        try:
            attempt = read_attempt(self._data.attempt(record.attempt_id) / ATTEMPT_FILE)
            self._isolation.require_for(
                attempt.source_files
            )  # an earlier agent prepared it, perhaps with isolation
            process = await asyncio.to_thread(
                launch.start,
                self._data,
                record,
                attempt=attempt,
                command=self._commands[record.kind],
                device=self._device,
                orphan_ttl_seconds=self._orphan_ttl_seconds,
                isolation=self._isolation,
                secrets=secrets,
            )
        except (LaunchError, IsolationError, OSError) as error:
            log.error("%s", error, extra=_subjects(record))
            processes.end_marked(record.job_id)  # its supervisor may have started it before it was lost
            self.end(record, EndReason.PREPARATION_FAILED, str(error))
            return
        self._supervisors[record.job_id] = process
        self._spool.save(record)
        log.info("%s runs, incarnation %d", record.name, record.incarnation, extra=_subjects(record))

    def stop(self, job_id: str) -> None:
        """Ask it to end."""
        record = self.record(job_id)
        log.info("%s is asked to stop", record.name, extra=_subjects(record))
        record.stop_sent_at = time.time()
        self.save(record)
        self._signal(record, STOP)

    def kill(self, job_id: str) -> None:
        record = self.record(job_id)
        log.warning(
            "%s did not stop within %g s and is killed",
            record.name, record.grace_seconds, extra=_subjects(record),
        )  # fmt: skip
        record.kill_sent_at = time.time()
        self.save(record)
        self._signal(record, KILL)

    def end(self, record: JobRecord, reason: EndReason, message: str) -> None:
        ended = self._data.supervision(record.attempt_id, record.name, record.incarnation) / EXIT_FILE
        record.exit_code = read_json(ended, ExitRecord).code if ended.exists() else None
        record.ended, record.reason, record.message = True, reason, message
        self._spool.save(record)
        log.info("%s ended: %s %s", record.name, reason, message, extra=_subjects(record))

    def _signal(self, record: JobRecord, number: signal.Signals) -> None:
        supervisor = self.supervisor(record)
        if supervisor is not None and supervisor_is_alive(supervisor):
            processes.send(supervisor.pid, number)


def supervisor_is_alive(supervisor: SupervisorRecord) -> bool:
    return (
        supervisor.boot_id == processes.boot_id()
        and supervisor.start_time is not None
        and processes.is_alive(supervisor.pid, supervisor.start_time)
    )


def _verdict(directory: Path) -> JobResult | None:
    """What the job itself said about its end, if it did."""
    try:
        content = read_below(directory.parent, directory.name, RESULT_FILE, limit=RESULT_BYTES)
        result = msgspec.json.decode(content, type=JobResult)
    except FileNotFoundError:
        return None
    except (Untrusted, msgspec.DecodeError) as error:
        log.error("%s cannot be read: %s", directory / RESULT_FILE, error)
        return None
    return msgspec.structs.replace(result, message=result.message[:MESSAGE_CHARACTERS])


def _served(directory: Path) -> bool:
    """Whether the job said that it serves. Anything else than its empty file is no word of it."""
    try:
        read_below(directory.parent, directory.name, READY_FILE, limit=0)
    except (FileNotFoundError, Untrusted):
        return False
    return True


def _subjects(record: JobRecord) -> dict[str, str]:
    """What a log line about a job carries."""
    return {"run": record.run_id, "attempt": record.attempt_id, "job": record.job_id}
