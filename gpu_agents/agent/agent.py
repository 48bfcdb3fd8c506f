"""The GPU agent: keeps its node's jobs equal to the desired state.

One loop: observe, report, receive, reconcile. Beside it two that only move bytes: outbox lines and logs
(shipping), checkpoints (checkpoints). All state that matters is on disk before it is acted on, so this
process may be killed at any moment: the jobs go on under their supervisors, and the next agent adopts them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from gpu_agents.agent import launch, processes
from gpu_agents.agent.api import AgentApi, Refused, Unreachable
from gpu_agents.agent.artifacts import ArtifactError, Cache, checkpoint_directory, model_directory
from gpu_agents.agent.backoff import Backoff
from gpu_agents.agent.checkpoints import Uploader
from gpu_agents.agent.inventory import take_inventory
from gpu_agents.agent.job_supervisor import KILL, STOP
from gpu_agents.agent.launch import COMMANDS, Command, InputPaths, LaunchError
from gpu_agents.agent.reconcile import (
    Action,
    Decline,
    End,
    Forget,
    Inputs,
    Kill,
    Launch,
    Phase,
    Picture,
    Preparation,
    Prepare,
    Restart,
    Sight,
    Stop,
    reconcile,
)
from gpu_agents.agent.records import (
    ExitRecord,
    JobRecord,
    Node,
    Spool,
    SupervisorRecord,
    read_desired,
    read_json,
    write_json,
)
from gpu_agents.agent.settings import AgentSettings, DataDirectory
from gpu_agents.agent.shipping import Shipper
from oolong.contracts.agent import (
    Artifact,
    DesiredAttempt,
    DesiredJob,
    EnrolRequest,
    HeartbeatReply,
    HeartbeatRequest,
    Inventory,
    ObservedJob,
)
from oolong.contracts.attempt import ATTEMPT_FILE, EXIT_FILE, RESULT_FILE, JobResult, read_attempt
from oolong.contracts.lifecycle import EndReason, JobKind, JobState

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25  # how often local changes are looked for while a heartbeat waits at the server
INVENTORY_SECONDS = 30.0
UNHELD_POLL_SECONDS = 1.0  # pause after a heartbeat that the server did not hold


class EnrolmentError(Exception):
    """This node has no credential and got none; the message says what to do."""


class Agent:
    """One node's agent. `commands` says how each kind of job is started; tests start small scripts instead."""

    def __init__(
        self, settings: AgentSettings, node: Node, *, commands: Mapping[JobKind, Command] = COMMANDS
    ) -> None:
        self._settings = settings
        self._node = node
        self._commands = commands
        self._data = DataDirectory(settings.data_directory)
        self._api = AgentApi(settings.server, node.credential)
        self._spool = Spool(self._data)
        self._cache = Cache(self._data.cache, limit_bytes=settings.cache_limit_bytes)
        self._shipper = Shipper(self._api, self._data, jobs=self._records, moved=self._nudge)
        self._uploader = Uploader(
            self._api, self._data, jobs=self._records, shipped=self._shipped, moved=self._nudge
        )
        self._desired = read_desired(self._data)
        self._revision = -1  # of the desired state
        self._acknowledged: set[str] = set()
        self._inputs: dict[str, Inputs] = {}
        self._preparing: dict[str, asyncio.Task[None]] = {}
        self._supervisors: dict[
            str, subprocess.Popen[bytes]
        ] = {}  # started by this process: it must reap them
        self._inventory: tuple[float, Inventory] | None = None
        self._started_at = time.time()
        self._reported: object = None  # what the server knows by the last heartbeat that arrived
        self._nudged = asyncio.Event()
        self._backoff = Backoff(first=0.5, most=10.0)

    async def run(self) -> None:
        """Serve until cancelled. Jobs are left as they are."""
        log.info(
            "node %s serves %s with %d known jobs",
            self._node.node_id,
            self._settings.server,
            len(self._spool.jobs),
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._loop(), name="loop")
                tasks.create_task(self._shipper.run(), name="shipper")
                tasks.create_task(self._uploader.run(), name="uploader")
        finally:
            for task in self._preparing.values():
                task.cancel()
            await asyncio.gather(*self._preparing.values(), return_exceptions=True)
            await self._api.close()

    async def _loop(self) -> None:
        while True:
            sights = self.observe()
            reply = await self._report(sights)
            if reply is not None:
                self._receive(reply)
            for action in self._decide():
                await self._act(action)
            self._tidy()

    # --- observe

    def observe(self) -> dict[str, Sight]:
        """Every job that this node knows, as it is now."""
        for job_id in [job_id for job_id, process in self._supervisors.items() if process.poll() is not None]:
            del self._supervisors[job_id]
        return {record.job_id: self._see(record) for record in self._records()}

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
            stop_sent_at=record.stop_sent_at,
            kill_sent_at=record.kill_sent_at,
            shut_down=record.shut_down,
        )
        if record.ended:
            return sight
        supervisor = self._supervisor(record)
        # Asked before the exit file: a supervisor writes that file before it ends, never after.
        alive = supervisor is not None and supervisor_is_alive(supervisor)
        directory = self._data.job(record.attempt_id, record.name, record.incarnation)
        if not (directory / EXIT_FILE).exists():
            if alive:
                return dataclasses.replace(sight, phase=Phase.ALIVE)
            self._bury(record, directory)
        ended = read_json(directory / EXIT_FILE, ExitRecord)
        return dataclasses.replace(
            sight, phase=Phase.GONE, exit_code=ended.code, cause=ended.cause, verdict=_verdict(directory)
        )

    def _supervisor(self, record: JobRecord) -> SupervisorRecord | None:
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
        log.error("%s: its supervisor was lost; %d processes of the job were killed", record.name, killed)
        directory.mkdir(parents=True, exist_ok=True)
        write_json(
            directory / EXIT_FILE, ExitRecord(code=-signal.SIGKILL, at=time.time(), cause="supervisor_lost")
        )

    # --- report

    async def _report(self, sights: Mapping[str, Sight]) -> HeartbeatReply | None:
        """One heartbeat. Goes out at once when there is news, otherwise waits at the server for some.

        Returns None when the server is away, or when something changed here before it answered.
        """
        self._nudged.clear()
        jobs = self.observed_jobs(sights)
        news = _news(jobs) != self._reported
        request = HeartbeatRequest(inventory=self._take_inventory(), jobs=jobs, started_at=self._started_at)
        try:
            if news:
                reply = await self._api.heartbeat(request)
            else:
                answer = await self._unless_changed(request)
                if answer is None:
                    return None
                reply = answer
        except (Unreachable, Refused) as error:
            wait = self._backoff.failed(getattr(error, "retry_after", None))
            log.warning("no heartbeat, again in %.1f s: %s%s", wait, error, _advice(error, self._data))
            await self._change(timeout=wait)
            return None
        self._backoff.succeeded()
        self._reported = _news(jobs)
        return reply

    async def _unless_changed(self, request: HeartbeatRequest) -> HeartbeatReply | None:
        """A heartbeat held by the server until there is something new, given up when something changes here."""
        began = time.monotonic()
        call = asyncio.create_task(
            self._api.heartbeat(
                request, wait_seconds=self._settings.long_poll_seconds, revision=self._revision
            ),
            name="heartbeat",
        )
        change = asyncio.create_task(self._change(), name="local change")
        try:
            await asyncio.wait({call, change}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                return None
            reply = await call
            if time.monotonic() - began < UNHELD_POLL_SECONDS and reply.attempts == (self._desired or []):
                await asyncio.wait({change}, timeout=UNHELD_POLL_SECONDS)
            return reply
        finally:
            for task in (call, change):
                task.cancel()
            await asyncio.gather(call, change, return_exceptions=True)

    async def _change(self, timeout: float | None = None) -> None:
        """Return when the node has news to report or something to do, or after the timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while deadline is None or time.monotonic() < deadline:
            try:
                # Not asyncio.wait_for: before Python 3.12 it may swallow a cancellation that meets a nudge.
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._nudged.wait()
                self._nudged.clear()
            except TimeoutError:
                pass
            away = timeout is not None
            if self._decide() or (not away and _news(self.observed_jobs(self.observe())) != self._reported):
                return

    def observed_jobs(self, sights: Mapping[str, Sight]) -> list[ObservedJob]:
        self._shipper.look()
        jobs = [self._observed(self._spool.jobs[job_id], sight) for job_id, sight in sights.items()]
        for attempt in self._desired or []:
            for job in attempt.jobs:
                if job.job_id not in sights:
                    jobs.append(
                        ObservedJob(
                            job_id=job.job_id,
                            attempt_id=attempt.attempt_id,
                            epoch=attempt.epoch,
                            state=JobState.PREPARING,
                        )
                    )
        return jobs

    def _observed(self, record: JobRecord, sight: Sight) -> ObservedJob:
        supervisor = self._supervisor(record)
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
        self._data.contact.touch(mode=0o600)
        os.utime(self._data.contact)
        self._acknowledged = set(reply.acknowledged)
        self._revision = reply.revision
        if reply.attempts != self._desired:
            self._desired = reply.attempts
            write_json(self._data.desired, reply.attempts)
            wanted = {attempt.attempt_id for attempt in reply.attempts}
            for attempt_id in [attempt_id for attempt_id in self._inputs if attempt_id not in wanted]:
                del self._inputs[attempt_id]
                task = self._preparing.pop(attempt_id, None)
                if task is not None:
                    task.cancel()

    # --- reconcile

    def _decide(self) -> list[Action]:
        if self._desired is None:
            return []  # nothing was ever received: nothing can be unwanted
        picture = Picture(self.observe(), self._inputs, self._acknowledged)
        return reconcile(self._desired, picture, now=time.time())

    async def _act(self, action: Action) -> None:
        match action:
            case Prepare(attempt):
                self._inputs[attempt.attempt_id] = Inputs(Preparation.RUNNING)
                self._preparing[attempt.attempt_id] = asyncio.create_task(
                    self._prepare(attempt), name=f"prepare {attempt.attempt_id}"
                )
            case Launch(attempt, job):
                await self._start(_new_record(attempt, job))
            case Restart(attempt, job, why):
                record = self._spool.jobs[job.job_id]
                log.warning("%s %s: restarted in place", job.name, why)
                await self._start(
                    msgspec.structs.replace(
                        record,
                        incarnation=record.incarnation + 1,
                        restarted_at=[*record.restarted_at, time.time()],
                    )
                )
            case Decline(attempt, job, reason, message):
                record = _new_record(attempt, job)
                record.ended, record.reason, record.message = True, reason, message
                self._spool.save(record)
            case Stop(job_id):
                record = self._spool.jobs[job_id]
                log.info("%s is asked to stop", record.name)
                record.stop_sent_at = time.time()
                self._spool.save(record)
                self._signal(record, STOP)
            case Kill(job_id):
                record = self._spool.jobs[job_id]
                log.warning("%s did not stop within %g s and is killed", record.name, record.grace_seconds)
                record.kill_sent_at = time.time()
                self._spool.save(record)
                self._signal(record, KILL)
            case End(job_id, reason, message):
                self._end(self._spool.jobs[job_id], reason, message)
            case Forget(job_id):
                self._spool.forget(job_id)

    async def _prepare(self, attempt: DesiredAttempt) -> None:
        """Bring the inputs here, see that the ports are free, write attempt.json."""
        try:
            self._evict()
            dataset, evaluation, resume = await asyncio.gather(
                self._cache.fetch(self._api, attempt.dataset),
                self._optional(attempt.evaluation),
                self._optional(attempt.resume),
            )
            sources = {
                kind: await self._cache.fetch(self._api, artifact)
                for kind, artifact in attempt.sources.items()
            }
            inputs = InputPaths(
                dataset_file=dataset,
                source_files=sources,
                evaluation_file=evaluation,
                resume_directory=checkpoint_directory(resume) if resume else None,
                model_directory=await self._model(attempt),
            )
            begun = any(record.attempt_id == attempt.attempt_id for record in self._records())
            taken = "" if begun else launch.taken_port(attempt.ports)
            if taken:
                raise ArtifactError(taken)
            launch.write_attempt(
                self._data,
                attempt,
                inputs,
                node_python=self._settings.node_python,
                device=self._settings.device,
            )
        except ModelUnusable as error:
            self._inputs[attempt.attempt_id] = Inputs(
                Preparation.FAILED, EndReason.MODEL_UNUSABLE, str(error)
            )
        except (ArtifactError, Refused, OSError) as error:
            self._inputs[attempt.attempt_id] = Inputs(Preparation.FAILED, message=str(error))
        else:
            self._inputs[attempt.attempt_id] = Inputs(Preparation.READY)
        self._nudge()

    async def _optional(self, artifact: Artifact | None) -> Path | None:
        return None if artifact is None else await self._cache.fetch(self._api, artifact)

    async def _model(self, attempt: DesiredAttempt) -> Path:
        if attempt.model is not None:
            content = await self._cache.fetch(self._api, attempt.model)
            try:
                return model_directory(content)
            except ArtifactError as error:
                raise ModelUnusable(str(error)) from error
        path = Path(attempt.model_path)
        if not attempt.model_path or not (path / "config.json").is_file():
            raise ModelUnusable(
                f"model path {attempt.model_path!r} has no config.json on node {self._settings.name}"
            )
        return path

    async def _start(self, record: JobRecord) -> None:
        """Start, then note it: were it the other way round, a crash in between would lose the start.

        Starting twice is harmless (a job directory is used once), so the next agent just repeats it.
        """
        try:
            process = await asyncio.to_thread(
                launch.start,
                self._data,
                record,
                attempt=read_attempt(self._data.attempt(record.attempt_id) / ATTEMPT_FILE),
                command=self._commands[record.kind],
                device=self._settings.device,
                orphan_ttl_seconds=self._node.orphan_ttl_seconds,
            )
        except LaunchError as error:
            log.error("%s", error)
            self._end(record, EndReason.PREPARATION_FAILED, str(error))
            return
        self._supervisors[record.job_id] = process
        self._spool.save(record)
        log.info("%s of attempt %s runs, incarnation %d", record.name, record.attempt_id, record.incarnation)

    def _end(self, record: JobRecord, reason: EndReason, message: str) -> None:
        ended = self._data.job(record.attempt_id, record.name, record.incarnation) / EXIT_FILE
        record.exit_code = read_json(ended, ExitRecord).code if ended.exists() else None
        record.ended, record.reason, record.message = True, reason, message
        self._spool.save(record)
        log.info("%s of attempt %s ended: %s %s", record.name, record.attempt_id, reason, message)

    def _signal(self, record: JobRecord, number: signal.Signals) -> None:
        supervisor = self._supervisor(record)
        if supervisor is not None and supervisor_is_alive(supervisor):
            processes.send(supervisor.pid, number)

    # --- tidy

    def _tidy(self) -> None:
        """Free the disk of what no attempt needs any more; the newest job directories stay for reading."""
        needed = {record.attempt_id for record in self._records()}
        needed.update(attempt.attempt_id for attempt in self._desired or [])
        retired = [
            directory
            for directory in self._data.attempts.iterdir()
            if directory.name not in needed and not self._uploader.pending(directory.name)
        ]
        for directory in retired:
            if (directory / "checkpoints").exists():
                for name in ("weights", "pinned", "checkpoints"):
                    shutil.rmtree(directory / name, ignore_errors=True)
                self._uploader.forget(directory.name)
        if len(retired) > self._settings.kept_attempts:
            retired.sort(key=lambda directory: directory.stat().st_mtime, reverse=True)
            for directory in retired[self._settings.kept_attempts :]:
                shutil.rmtree(directory)

    def _evict(self) -> None:
        in_use = {
            artifact.sha256
            for attempt in self._desired or []
            for artifact in (
                attempt.dataset,
                attempt.evaluation,
                attempt.model,
                attempt.resume,
                *attempt.sources.values(),
            )
            if artifact is not None
        }
        for sha256 in self._cache.evict(in_use=in_use):
            log.info("artifact %s left the cache", sha256[:12])

    def _take_inventory(self) -> Inventory:
        if self._inventory is None or time.monotonic() - self._inventory[0] > INVENTORY_SECONDS:
            self._inventory = (time.monotonic(), inventory_of(self._settings))
        return self._inventory[1]

    def _records(self) -> list[JobRecord]:
        return list(self._spool.jobs.values())

    def _shipped(self, job_id: str, file: str) -> int:
        if job_id not in self._spool.jobs:
            return sys.maxsize  # forgotten, so the server has read its outbox to the end
        stream = self._shipper.streams.get((job_id, file))
        return stream.shipped if stream is not None else 0

    def _nudge(self) -> None:
        self._nudged.set()


class ModelUnusable(Exception):
    """The model's directory is not one that can be loaded."""


async def enrol(settings: AgentSettings) -> Node:
    """The node's identity: kept in node.json, or got once with the single-use token."""
    data = DataDirectory(settings.data_directory)
    if data.node.exists():
        return read_json(data.node, Node)
    if not settings.enrol_token:
        raise EnrolmentError(
            f"{data.node} does not exist, so this node must be enrolled first: pass --enrol-token with a token from "
            "the pool page (or --enrol-token-file)"
        )
    api = AgentApi(settings.server, settings.enrol_token)
    try:
        reply = await api.enrol(EnrolRequest(name=settings.name, inventory=inventory_of(settings)))
    except Refused as refusal:
        raise EnrolmentError(
            f"the control plane refused the enrolment token ({refusal}); a token works once, get a new one"
        ) from refusal
    finally:
        await api.close()
    node = Node(
        server=settings.server,
        node_id=reply.node_id,
        credential=reply.credential,
        heartbeat_seconds=reply.heartbeat_seconds,
        orphan_ttl_seconds=reply.orphan_ttl_seconds,
    )
    write_json(data.node, node)
    return node


def inventory_of(settings: AgentSettings) -> Inventory:
    return take_inventory(
        settings.data_directory, device=settings.device, slots=settings.slots, version=agent_version()
    )


def agent_version() -> str:
    try:
        return version("oolong")
    except PackageNotFoundError:
        return "0+checkout"


def supervisor_is_alive(supervisor: SupervisorRecord) -> bool:
    return (
        supervisor.boot_id == processes.boot_id()
        and supervisor.start_time is not None
        and processes.is_alive(supervisor.pid, supervisor.start_time)
    )


def _advice(error: Exception, data: DataDirectory) -> str:
    if isinstance(error, Refused) and error.status in (401, 403):
        return (
            f"; the control plane does not know this node's credential (any more): stop the agent, remove {data.node}, "
            "and enrol again with a new token"
        )
    return ""


def _new_record(attempt: DesiredAttempt, job: DesiredJob) -> JobRecord:
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
    )


def _news(jobs: list[ObservedJob]) -> object:
    """What is worth a heartbeat at once: states and ends, and how far the files of ended jobs are."""
    return [
        (job.job_id, job.state, job.incarnation, job.pid, job.exit_code, job.reason)
        + (
            (tuple((file.file, file.bytes, file.shipped) for file in job.outbox),)
            if job.state is JobState.EXITED
            else ()
        )
        for job in jobs
    ]


def _verdict(directory: Path) -> JobResult | None:
    """What the job itself said about its end, if it did."""
    path = directory / RESULT_FILE
    if not path.exists():
        return None
    try:
        return read_json(path, JobResult)
    except (ValueError, msgspec.ValidationError) as error:
        log.error("%s cannot be read: %s", path, error)
        return None
