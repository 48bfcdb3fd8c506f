"""The GPU agent: keeps its node's jobs equal to the desired state.

One loop: observe, report, receive, reconcile. Beside it three that only move bytes: outbox lines and logs
(shipping), checkpoints (checkpoints), requests of users (relay). All state that matters is on disk before it is
acted on, so this process may be killed at any moment: the jobs go on under their supervisors, and the next agent
adopts them.
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

from gpu_agents.agent.api import AgentApi
from gpu_agents.agent.checkpoints import Uploader
from gpu_agents.agent.end_jobs import end_jobs
from gpu_agents.agent.heartbeat import Heart, NodeRevoked
from gpu_agents.agent.imports import ModelImports
from gpu_agents.agent.isolation.node import NodeIsolation, detect
from gpu_agents.agent.job_secrets import JobSecrets, NotGiven
from gpu_agents.agent.launch import COMMANDS, Command, write_live
from gpu_agents.agent.model_checks import ModelChecks
from gpu_agents.agent.node_jobs import NodeJobs
from gpu_agents.agent.preparation import Preparer
from gpu_agents.agent.reconcile import (
    UNWANTED_GRACE_SECONDS,
    Action,
    Decline,
    End,
    Forget,
    Kill,
    Launch,
    Phase,
    Picture,
    Prepare,
    Restart,
    Sight,
    Stop,
    reconcile,
)
from gpu_agents.agent.records import JobRecord, Node, read_desired, write_json
from gpu_agents.agent.relay import RelayClient
from gpu_agents.agent.settings import AgentSettings, DataDirectory
from gpu_agents.agent.shipping import Shipper
from gpu_agents.agent.untrusted import remove_tree
from oolong.contracts.agent import DesiredAttempt, DesiredJob, HeartbeatReply, ObservedJob
from oolong.contracts.lifecycle import JobKind, JobState

log = logging.getLogger(__name__)


class Agent:
    """One node's agent. `commands` says how each kind of job is started; tests start small scripts instead."""

    def __init__(
        self,
        settings: AgentSettings,
        node: Node,
        *,
        commands: Mapping[JobKind, Command] = COMMANDS,
        isolation: NodeIsolation | None = None,
    ) -> None:
        self._settings = settings
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
        self._heart = Heart(
            settings, self._data, self._api,
            observed=self.observed_jobs, work=lambda: bool(self._decide()), isolation=self._isolation,
        )  # fmt: skip
        self._preparer = Preparer(
            settings, self._data, self._api, moved=self._heart.nudge, isolation=self._isolation
        )
        self._shipper = Shipper(self._api, self._data, jobs=self._jobs.records, moved=self._heart.nudge)
        self._uploader = Uploader(
            self._api, self._data, jobs=self._jobs.records, shipped=self._shipped, moved=self._heart.nudge
        )
        self._secrets = JobSecrets(self._api)
        self._imports = ModelImports(self._api, self._data, settings.hub_hosts)
        self._model_checks = ModelChecks(self._api, self._data, settings.model_roots)
        self._relay = RelayClient(settings.server, node.credential, lambda: self._desired or [])
        self._desired = read_desired(self._data)
        self._revision = -1  # of the desired state
        self._acknowledged: set[str] = set()

    async def run(self) -> None:
        """Serve until cancelled, and leave jobs as they are. Raise NodeRevoked, once they have ended, if it is."""
        known = len(self._jobs.records())
        log.info("node %s serves %s with %d known jobs", self._node.node_id, self._settings.server, known)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._loop(), name="loop")
                tasks.create_task(self._shipper.run(), name="shipper")
                tasks.create_task(self._uploader.run(), name="uploader")
                tasks.create_task(self._relay.run(), name="relay")
        except* NodeRevoked as revoked:
            reason = str(revoked.exceptions[0])
        finally:
            await self._preparer.close()
            await self._imports.close()
            await self._model_checks.close()
            await self._api.close()
        self._leave_pool()
        raise NodeRevoked(reason)

    def _leave_pool(self) -> None:
        """End the jobs and forget who this node was, so that a new token makes it another one. The credential goes
        last: an agent that is killed meanwhile is refused again, and does this again."""
        ended = end_jobs(self._data, grace_seconds=UNWANTED_GRACE_SECONDS)
        log.info("jobs ended: %d after being asked, %d by force", ended.stopped, ended.killed)
        for record in self._jobs.records():
            self._jobs.forget(record.job_id)
        self._data.desired.unlink(missing_ok=True)
        self._data.node.unlink()

    async def _loop(self) -> None:
        while True:
            reply = await self._heart.beat(desired=self._desired or [], revision=self._revision)
            if reply is not None:
                self._receive(reply)
            for action in self._decide():
                await self._act(action)
            try:
                self._tidy()
            except OSError as error:  # what a job left must not stop the others
                log.error("files of an attempt that has ended are left: %s", error)

    # --- observe

    def observed_jobs(self) -> list[ObservedJob]:
        """Every job that this node knows, and those that it is preparing, as the control plane is told."""
        self._shipper.look()
        sights = self._jobs.observe()
        jobs = [self._observed(self._jobs.record(job_id), sight) for job_id, sight in sights.items()]
        for attempt in self._desired or []:
            fetched, whole = self._preparer.fetched_bytes(attempt)
            for job in attempt.jobs:
                if job.job_id not in sights:
                    jobs.append(
                        ObservedJob(
                            job_id=job.job_id,
                            attempt_id=attempt.attempt_id,
                            epoch=attempt.epoch,
                            state=JobState.PREPARING,
                            fetched_bytes=fetched,
                            input_bytes=whole,
                        )
                    )
        return jobs

    def _observed(self, record: JobRecord, sight: Sight) -> ObservedJob:
        supervisor = self._jobs.supervisor(record)
        return ObservedJob(
            job_id=record.job_id,
            attempt_id=record.attempt_id,
            epoch=record.epoch,
            state=JobState.EXITED if sight.phase is Phase.ENDED else JobState.RUNNING,
            incarnation=record.incarnation,
            pid=supervisor.job_pid if supervisor else 0,
            exit_code=record.exit_code,
            reason=record.reason,
            message=record.message,
            outbox=self._shipper.offsets(record.job_id),
        )

    # --- receive

    def _receive(self, reply: HeartbeatReply) -> None:
        self._imports.wanted(reply.imports)
        self._model_checks.wanted(reply.model_checks)
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

    def _decide(self) -> list[Action]:
        if self._desired is None:
            return []  # nothing was ever received: nothing can be unwanted
        picture = Picture(self._jobs.observe(), self._preparer.inputs, self._acknowledged)
        actions = reconcile(self._desired, picture, now=time.time())
        return [action for action in actions if not self._secrets.waits_for(action)]

    async def _act(self, action: Action) -> None:
        match action:
            case Prepare(attempt):
                begun = any(record.attempt_id == attempt.attempt_id for record in self._jobs.records())
                self._preparer.begin(attempt, begun=begun, wanted=self._desired or [])
            case Launch(attempt, job):
                await self._start(new_record(attempt, job), job)
            case Restart(attempt, job, why, failures):
                record = self._jobs.record(job.job_id)
                log.warning("%s %s: restarted in place", job.name, why)
                restarted = msgspec.structs.replace(
                    record,
                    incarnation=record.incarnation + 1,
                    restarted_at=[*record.restarted_at, time.time()],
                    failed_starts=failures,
                )
                await self._start(restarted, job)
            case Decline(attempt, job, reason, message):
                record = new_record(attempt, job)
                record.ended, record.reason, record.message = True, reason, message
                self._jobs.save(record)
            case Stop(job_id):
                self._jobs.stop(job_id)
            case Kill(job_id):
                self._jobs.kill(job_id)
            case End(job_id, reason, message):
                self._jobs.end(self._jobs.record(job_id), reason, message)
            case Forget(job_id):
                self._jobs.forget(job_id)

    async def _start(self, record: JobRecord, job: DesiredJob) -> None:
        """Start it with the secrets of this moment. What cannot be had now is asked for again a little later."""
        secrets = await self._secrets.of(record, job)
        if isinstance(secrets, NotGiven):
            self._jobs.end(record, secrets.reason, secrets.message)
        elif secrets is not None:
            await self._jobs.start(record, secrets)

    # --- tidy

    def _tidy(self) -> None:
        """Free the disk of what no attempt needs any more; the newest job directories stay for reading."""
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
        """Remove the large files of an attempt; its checkpoints last, by which it is known to need that."""
        home = directory / "home"
        if home.exists():
            owner = home.stat().st_uid  # it says which uid the attempt has until all of it is removed
            remove_tree(home)
            home.mkdir(mode=0o700)
            os.chown(home, owner, -1)
        for name in ("weights", "pinned", "checkpoints"):
            if (directory / name).exists():
                remove_tree(directory / name)

    def _shipped(self, job_id: str, file: str) -> int:
        if not self._jobs.knows(job_id):
            return sys.maxsize  # forgotten, so the server has read its outbox to the end
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
