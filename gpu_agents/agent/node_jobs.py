"""The jobs of this node: observe, start, signal and end them.

Each record is on disk before the agent acts on it, and supervisors outlive the agent, so a restarted agent continues
where this one ended.
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
from gpu_agents.agent.reconcile import Observation, Phase
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
        # children of this process, which must reap them
        self._supervisors: dict[str, subprocess.Popen[bytes]] = {}

    def records(self) -> list[JobRecord]:
        return list(self._spool.jobs.values())

    def held_slots(self) -> dict[str, list[str]]:
        """The slots of each job that has some and has not ended."""
        return {record.job_id: record.slots for record in self.records() if record.slots and not record.ended}

    def knows(self, job_id: str) -> bool:
        return job_id in self._spool.jobs

    def record(self, job_id: str) -> JobRecord:
        return self._spool.jobs[job_id]

    def save(self, record: JobRecord) -> None:
        self._spool.save(record)

    def note_shutdown(self) -> None:
        """The jobs that run end because the node ends: no user stops them, and they have not failed."""
        for record in self.records():
            if not record.ended:
                record.shut_down = True
                self._spool.save(record)

    def remove(self, job_id: str) -> None:
        self._spool.remove(job_id)

    # --- observe

    def observe(self) -> dict[str, Observation]:
        """Observe every job with a record on this node."""
        for job_id in [job_id for job_id, process in self._supervisors.items() if process.poll() is not None]:
            del self._supervisors[job_id]
        return {record.job_id: self._observe(record) for record in self.records()}

    def _observe(self, record: JobRecord) -> Observation:
        observation = Observation(
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
            return observation
        supervisor = self.supervisor(record)
        # Checked before the exit file, which a supervisor writes before it exits.
        alive = supervisor is not None and supervisor.handle.is_alive()
        directory = self._data.supervision(record.attempt_id, record.name, record.incarnation)
        if not (directory / EXIT_FILE).exists():
            if alive:
                return dataclasses.replace(observation, phase=Phase.ALIVE)
            self._record_lost_supervisor(record, directory)
        ended = read_json(directory / EXIT_FILE, ExitRecord)
        own = self._data.job(record.attempt_id, record.name, record.incarnation)
        return dataclasses.replace(
            observation,
            phase=Phase.GONE,
            exit_code=ended.code,
            cause=ended.cause,
            result=_read_result(own),
            ready=_is_ready(own),
            log_tail=log_tail(directory / LOG_FILE),
        )

    def supervisor(self, record: JobRecord) -> SupervisorRecord | None:
        path = self._data.supervisor(record.job_id)
        if not path.exists():
            return None
        supervisor = read_json(path, SupervisorRecord)
        if supervisor.incarnation > record.incarnation:  # an earlier agent crashed before it saved the start
            record.restarted_at = [*record.restarted_at, time.time()]
            record.incarnation = supervisor.incarnation
            self._spool.save(record)
        return supervisor

    def _record_lost_supervisor(self, record: JobRecord, directory: Path) -> None:
        """The supervisor was killed, or the machine rebooted: kill the job's processes and write its exit file."""
        killed = processes.end_marked(record.job_id)
        log.error(
            "%s: its supervisor was lost; %d processes of the job were killed",
            record.name, killed, extra=_log_fields(record),
        )  # fmt: skip
        directory.mkdir(parents=True, exist_ok=True)
        if (directory / TEMPORARY).exists():
            remove_tree(directory / TEMPORARY)
        write_json(
            directory / EXIT_FILE, ExitRecord(code=-signal.SIGKILL, at=time.time(), cause="supervisor_lost")
        )

    # --- act

    async def start(self, record: JobRecord, secrets: Mapping[str, str]) -> None:
        """Start the job, then save its record.

        After a crash in between, the next agent starts it again; that is harmless, because each job directory is used
        once.
        """
        try:
            attempt = read_attempt(self._data.attempt(record.attempt_id) / ATTEMPT_FILE)
            # An earlier agent may have prepared the attempt on a node that had isolation.
            self._isolation.require_for(attempt.source_files)
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
            log.error("%s", error, extra=_log_fields(record))
            processes.end_marked(record.job_id)  # a lost supervisor may have started it
            self.end(record, EndReason.PREPARATION_FAILED, str(error))
            return
        self._supervisors[record.job_id] = process
        self._spool.save(record)
        log.info("%s started, incarnation %d", record.name, record.incarnation, extra=_log_fields(record))

    def stop(self, job_id: str) -> None:
        """Stop the job gracefully."""
        record = self.record(job_id)
        log.info("stopping %s", record.name, extra=_log_fields(record))
        record.stop_sent_at = time.time()
        self.save(record)
        self._signal(record, STOP)

    def kill(self, job_id: str) -> None:
        record = self.record(job_id)
        log.warning(
            "%s did not stop within %g s and is killed",
            record.name, record.grace_seconds, extra=_log_fields(record),
        )  # fmt: skip
        record.kill_sent_at = time.time()
        self.save(record)
        self._signal(record, KILL)

    def end(self, record: JobRecord, reason: EndReason, message: str) -> None:
        ended = self._data.supervision(record.attempt_id, record.name, record.incarnation) / EXIT_FILE
        record.exit_code = read_json(ended, ExitRecord).code if ended.exists() else None
        record.ended, record.reason, record.message = True, reason, message
        self._spool.save(record)
        log.info("%s ended: %s %s", record.name, reason, message, extra=_log_fields(record))

    def _signal(self, record: JobRecord, number: signal.Signals) -> None:
        supervisor = self.supervisor(record)
        if supervisor is not None:
            supervisor.handle.signal(number)


def _read_result(directory: Path) -> JobResult | None:
    """The result that the job wrote, if any."""
    try:
        content = read_below(directory.parent, directory.name, RESULT_FILE, limit=RESULT_BYTES)
        result = msgspec.json.decode(content, type=JobResult)
    except FileNotFoundError:
        return None
    except (Untrusted, msgspec.DecodeError) as error:
        log.error("%s cannot be read: %s", directory / RESULT_FILE, error)
        return None
    return msgspec.structs.replace(result, message=result.message[:MESSAGE_CHARACTERS])


def _is_ready(directory: Path) -> bool:
    """Whether the job created its empty ready file."""
    try:
        read_below(directory.parent, directory.name, READY_FILE, limit=0)
    except (FileNotFoundError, Untrusted):
        return False
    return True


def _log_fields(record: JobRecord) -> dict[str, str]:
    """Fields of log lines about a job."""
    return {"run": record.run_id, "attempt": record.attempt_id, "job": record.job_id}
