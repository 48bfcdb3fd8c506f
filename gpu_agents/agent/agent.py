"""The GPU agent: keeps its node's jobs equal to the desired state.

One loop observes, reports, receives and reconciles. Three more transfer data: telemetry (shipping), checkpoints
(checkpoints) and user requests (relay). State is on disk before the agent acts on it, so this process may be killed at
any time: jobs continue under their supervisors, and the next agent adopts them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpu_agents.agent.api import AgentApi, ApiError, ServerUnavailable
from gpu_agents.agent.checkpoints import Uploader
from gpu_agents.agent.heartbeat import HeartbeatLoop, NodeRevoked
from gpu_agents.agent.imports import ModelImports
from gpu_agents.agent.isolation.node import NodeIsolation, detect
from gpu_agents.agent.job_secrets import JobSecrets, SecretsUnavailable
from gpu_agents.agent.launch import COMMANDS, Command, write_live
from gpu_agents.agent.model_checks import ModelChecks
from gpu_agents.agent.node_jobs import NodeJobs
from gpu_agents.agent.preparation import Preparer
from gpu_agents.agent.reconcile import (
    UNWANTED_GRACE_SECONDS,
    Action,
    End,
    Kill,
    Launch,
    NodeState,
    Observation,
    Phase,
    Prepare,
    Reject,
    Remove,
    Restart,
    Stop,
    reconcile,
)
from gpu_agents.agent.records import JobRecord, Node, read_desired, write_json
from gpu_agents.agent.relay import RelayClient
from gpu_agents.agent.settings import AgentSettings, DataDirectory
from gpu_agents.agent.shipping import TelemetryShipper
from gpu_agents.agent.terminate_jobs import terminate_jobs
from gpu_agents.agent.untrusted import remove_tree
from oolong.contracts.agent import DesiredAttempt, DesiredJob, HeartbeatReply, ObservedJob
from oolong.contracts.lifecycle import JobKind, JobState

log = logging.getLogger(__name__)

LEAVE_SECONDS = 1.0  # between attempts to leave the pool


class NodeLeft(Exception):
    """The node has left its pool. The message says why."""


class Agent:
    """One node's agent. `commands` maps each kind of job to its command; tests start scripts instead. `leave` is set
    when the node's provider asks for the node."""

    def __init__(
        self,
        settings: AgentSettings,
        node: Node,
        *,
        commands: Mapping[JobKind, Command] = COMMANDS,
        isolation: NodeIsolation | None = None,
        leave: asyncio.Event | None = None,
    ) -> None:
        self._settings = settings
        self._leave = leave or asyncio.Event()
        self._left = ""  # why the node has left, or is about to leave, its pool
        self._node = node
        self._data = DataDirectory(settings.data_directory)
        self._api = AgentApi(settings.server, node.credential)
        self._isolation = isolation or detect(settings, self._data)
        self._jobs = NodeJobs(
            self._data,
            isolation=self._isolation,
            commands=commands,
            device=settings.device,
            orphan_ttl_seconds=node.orphan_ttl_seconds,
        )
        self._heartbeats = HeartbeatLoop(
            settings, self._data, self._api,
            observed=self.observed_jobs, work=lambda: bool(self._plan()), held=self._jobs.held_slots,
            isolation=self._isolation,
        )  # fmt: skip
        self._preparer = Preparer(
            settings, self._data, self._api, on_progress=self._heartbeats.wake, isolation=self._isolation
        )
        self._shipper = TelemetryShipper(
            self._api, self._data, jobs=self._jobs.records, on_progress=self._heartbeats.wake
        )
        self._uploader = Uploader(
            self._api,
            self._data,
            jobs=self._jobs.records,
            shipped=self._shipped,
            on_progress=self._heartbeats.wake,
        )
        self._secrets = JobSecrets(self._api)
        self._imports = ModelImports(self._api, self._data, settings.hub_hosts)
        self._model_checks = ModelChecks(self._api, self._data, settings.model_roots)
        self._relay = RelayClient(settings.server, node.credential, lambda: self._desired or [])
        self._desired = read_desired(self._data)
        self._revision = -1  # of the desired state
        self._acknowledged: set[str] = set()

    async def run(self) -> None:
        """Run until cancelled; jobs keep running. If the node is revoked, terminate its jobs and raise NodeRevoked;
        when it has left its pool, raise NodeLeft."""
        known = len(self._jobs.records())
        log.info("node %s of %s, %d jobs on record", self._node.node_id, self._settings.server, known)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._loop(), name="loop")
                tasks.create_task(self._shipper.run(), name="shipper")
                tasks.create_task(self._uploader.run(), name="uploader")
                tasks.create_task(self._relay.run(), name="relay")
                tasks.create_task(self._report_end(), name="end")
                tasks.create_task(self._leave_when_due(), name="leave")
        except* (NodeRevoked, NodeLeft) as ended:
            reason = str(ended.exceptions[0])
        finally:
            await self._preparer.close()
            await self._imports.close()
            await self._model_checks.close()
            await self._api.close()
        self._forget_pool()
        raise NodeLeft(self._left) if self._left else NodeRevoked(reason)

    async def _report_end(self) -> None:
        """When the provider asks for the node, report that the node ends: the control plane drains it. No further job
        starts."""
        await self._leave.wait()
        seconds = self._settings.allocation.kill_seconds
        log.warning("%s ends this node within %g s", self._settings.allocation.provider, seconds)
        self._jobs.note_shutdown()
        self._heartbeats.report_end(time.time() + seconds)

    async def _leave_when_due(self) -> None:
        """Leave the pool when the provider has asked for the node, or after the idle time: once nothing needs it."""
        idle_since = time.monotonic()
        while True:
            await asyncio.sleep(LEAVE_SECONDS)
            now = time.monotonic()
            if self._is_busy():
                idle_since = now
            elif self._leave.is_set():
                await self._try_to_leave(f"{self._settings.allocation.provider} ends it")
            elif (limit := self._settings.idle_seconds) is not None and now - idle_since >= limit:
                await self._try_to_leave(f"it had no jobs for {limit / 60:g} minutes")

    async def _try_to_leave(self, why: str) -> None:
        self._left = why  # first: a heartbeat may notice before this reply that the credential has ended
        try:
            await self._api.leave()
        except (ApiError, ServerUnavailable) as error:
            self._left = ""
            log.info("the node cannot leave its pool yet: %s", error)
        else:
            raise NodeLeft(why)

    def _is_busy(self) -> bool:
        """Whether the node has jobs or files that the control plane waits for, or has not heard from it."""
        transfers = (self._uploader, self._imports, self._model_checks)
        return (
            self._desired is None
            or bool(self._desired or self._jobs.records())
            or any(one.is_busy for one in transfers)
        )

    def _forget_pool(self) -> None:
        """Terminate the jobs and remove this node's identity, so that a new join token enrolls another node.

        The credential is removed last: if this is interrupted, the next agent is rejected again and repeats it.
        """
        terminated = terminate_jobs(self._data, grace_seconds=UNWANTED_GRACE_SECONDS)
        log.info("jobs terminated: %d stopped, %d killed", terminated.stopped, terminated.killed)
        for record in self._jobs.records():
            self._jobs.remove(record.job_id)
        self._data.desired.unlink(missing_ok=True)
        self._data.node.unlink()

    async def _loop(self) -> None:
        while True:
            reply = await self._heartbeats.send(desired=self._desired or [], revision=self._revision)
            if reply is not None:
                self._apply_reply(reply)
            for action in self._plan():
                await self._execute(action)
            try:
                self._collect_garbage()
            except OSError as error:  # files that one job left must not stop the other jobs
                log.error("files of an ended attempt were not removed: %s", error)

    # --- observe

    def observed_jobs(self) -> list[ObservedJob]:
        """The jobs as reported to the control plane: those with a record, and those in preparation."""
        self._shipper.scan()
        observations = self._jobs.observe()
        jobs = [
            self._observed(self._jobs.record(job_id), observation)
            for job_id, observation in observations.items()
        ]
        for attempt in self._desired or []:
            fetched, total = self._preparer.fetched_bytes(attempt)
            for job in attempt.jobs:
                if job.job_id not in observations:
                    jobs.append(
                        ObservedJob(
                            job_id=job.job_id,
                            attempt_id=attempt.attempt_id,
                            epoch=attempt.epoch,
                            state=JobState.PREPARING,
                            fetched_bytes=fetched,
                            input_bytes=total,
                        )
                    )
        return jobs

    def _observed(self, record: JobRecord, observation: Observation) -> ObservedJob:
        supervisor = self._jobs.supervisor(record)
        return ObservedJob(
            job_id=record.job_id,
            attempt_id=record.attempt_id,
            epoch=record.epoch,
            state=JobState.EXITED if observation.phase is Phase.ENDED else JobState.RUNNING,
            incarnation=record.incarnation,
            pid=supervisor.job_pid if supervisor else 0,
            exit_code=record.exit_code,
            reason=record.reason,
            message=record.message,
            outbox=self._shipper.offsets(record.job_id),
        )

    # --- receive

    def _apply_reply(self, reply: HeartbeatReply) -> None:
        self._imports.assign(reply.imports)
        self._model_checks.assign(reply.model_checks)
        self._data.contact.touch(mode=0o600)
        os.utime(self._data.contact)
        self._acknowledged = set(reply.acknowledged)
        self._revision = reply.revision
        if reply.attempts != self._desired:
            self._desired = reply.attempts
            write_json(self._data.desired, reply.attempts)
            for attempt in reply.attempts:
                write_live(self._data, attempt)
            self._preparer.keep_only({attempt.attempt_id for attempt in reply.attempts})

    # --- reconcile

    def _plan(self) -> list[Action]:
        if self._desired is None:
            return []  # no desired state received yet
        state = NodeState(self._jobs.observe(), self._preparer.inputs, self._acknowledged)
        actions = reconcile(self._desired, state, now=time.time())
        if self._leave.is_set():
            actions = [action for action in actions if not isinstance(action, Prepare | Launch | Restart)]
        return [action for action in actions if not self._secrets.is_backing_off(action)]

    async def _execute(self, action: Action) -> None:
        match action:
            case Prepare(attempt):
                begun = any(record.attempt_id == attempt.attempt_id for record in self._jobs.records())
                self._preparer.begin(attempt, begun=begun, wanted=self._desired or [])
            case Launch(attempt, job):
                await self._start(new_record(attempt, job), job)
            case Restart(attempt, job, why, failures):
                record = self._jobs.record(job.job_id)
                log.warning("%s %s: restarting in place", job.name, why)
                restarted = msgspec.structs.replace(
                    record,
                    incarnation=record.incarnation + 1,
                    restarted_at=[*record.restarted_at, time.time()],
                    failed_starts=failures,
                )
                await self._start(restarted, job)
            case Reject(attempt, job, reason, message):
                record = new_record(attempt, job)
                record.ended, record.reason, record.message = True, reason, message
                self._jobs.save(record)
            case Stop(job_id):
                self._jobs.stop(job_id)
            case Kill(job_id):
                self._jobs.kill(job_id)
            case End(job_id, reason, message):
                self._jobs.end(self._jobs.record(job_id), reason, message)
            case Remove(job_id):
                self._jobs.remove(job_id)

    async def _start(self, record: JobRecord, job: DesiredJob) -> None:
        """Fetch the current secrets and start the job. If they are unavailable, it is retried later."""
        secrets = await self._secrets.fetch(record, job)
        if isinstance(secrets, SecretsUnavailable):
            self._jobs.end(record, secrets.reason, secrets.message)
        elif secrets is not None:
            await self._jobs.start(record, secrets)

    # --- garbage collection

    def _collect_garbage(self) -> None:
        """Remove files that no attempt needs. The newest job directories stay for inspection."""
        needed = {record.attempt_id for record in self._jobs.records()}
        needed.update(attempt.attempt_id for attempt in self._desired or [])
        retired = [
            directory
            for directory in self._data.attempts.iterdir()
            if directory.name not in needed and not self._uploader.pending(directory.name)
        ]
        for directory in retired:
            if (directory / "checkpoints").exists():
                self._remove_files(directory)
                self._uploader.forget(directory.name)
        if len(retired) > self._settings.kept_attempts:
            retired.sort(key=lambda directory: directory.stat().st_mtime, reverse=True)
            for directory in retired[self._settings.kept_attempts :]:
                self._isolation.remove_attempt(directory)

    def _remove_files(self, directory: Path) -> None:
        """Remove the large files of an attempt; checkpoints last, because they mark that it is not cleaned up yet."""
        home = directory / "home"
        if home.exists():
            owner = home.stat().st_uid  # records the attempt's uid until the directory is removed
            remove_tree(home)
            home.mkdir(mode=0o700)
            os.chown(home, owner, -1)
        for name in ("weights", "pinned", "checkpoints"):
            if (directory / name).exists():
                remove_tree(directory / name)

    def _shipped(self, job_id: str, file: str) -> int:
        if not self._jobs.knows(job_id):
            return sys.maxsize  # removed, so the server has its whole outbox
        stream = self._shipper.streams.get((job_id, file))
        return stream.shipped if stream is not None else 0


def new_record(attempt: DesiredAttempt, job: DesiredJob) -> JobRecord:
    return JobRecord(
        job_id=job.job_id,
        run_id=attempt.run_id,
        attempt_id=attempt.attempt_id,
        epoch=attempt.epoch,
        name=job.name,
        kind=job.kind,
        index=job.index,
        slots=job.slots,
        grace_seconds=job.grace_seconds,
        engine_port=job.engine_port,
        session_port=job.session_port,
        evaluates=job.evaluates,
    )
