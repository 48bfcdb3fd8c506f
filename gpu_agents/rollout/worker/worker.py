"""The worker's loops: claim groups to fill the engine, renew the claims, report metrics."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from gpu_agents.rollout.engines.errors import EngineError
from gpu_agents.rollout.sessions.manager import SessionManager
from gpu_agents.rollout.sessions.session import PolicyClient
from gpu_agents.rollout.sessions.session_group import SessionConfig, SessionGroup
from gpu_agents.rollout.worker.concurrency import LoadSample, Window, aimd_update
from gpu_agents.rollout.worker.config import WorkerConfig
from gpu_agents.rollout.worker.deregister import deregister
from gpu_agents.rollout.worker.engine_supervisor import EngineSupervisor
from gpu_agents.rollout.worker.episode import RolloutContext
from gpu_agents.rollout.worker.evaluation import error_cause, evaluate
from gpu_agents.rollout.worker.group_task import GroupTask, Interruption
from gpu_agents.rollout.worker.manifest import InvalidWeights
from gpu_agents.rollout.worker.permits import Permits
from gpu_agents.rollout.worker.scoring import RewardFailed
from gpu_agents.rollout.worker.telemetry import WorkerTelemetry
from gpu_agents.rollout.worker.weight_loader import Load, WeightLoader
from oolong.contracts.rollout import (
    Ack,
    ClaimReply,
    ClaimRequest,
    EvaluationFailure,
    EvaluationResult,
    EvaluationTask,
    Refusal,
    RenewReply,
    RenewRequest,
)
from oolong.system.rpc import RpcClient, RpcError
from oolong.workflow import WorkflowFailed

log = logging.getLogger(__name__)

RENEW_SECONDS = 5.0
REPORT_SECONDS = 5.0
ADAPT_SECONDS = 5.0
CLAIM_POLL_SECONDS = 5.0
BEHIND_SECONDS = 0.05

Ending = Literal["ended", "stopped"]


class ClaimedWork(Protocol):
    """The work on one claim: a workflow or an agent session per rollout."""

    @property
    def claim_id(self) -> str: ...

    async def run(self) -> None: ...

    async def interrupt(self, interruption: Interruption) -> None: ...


@dataclass(frozen=True)
class Sessions:
    """Session support of a run whose rollouts come from user agents."""

    manager: SessionManager
    config: SessionConfig


class Worker:
    """One engine's worker. `run` returns when the run has ended, or when `stop` is set and all groups are released."""

    def __init__(
        self,
        *,
        options: WorkerConfig,
        context: RolloutContext,
        supervisor: EngineSupervisor,
        loader: WeightLoader,
        loads: list[Load],
        controller: RpcClient,
        telemetry: WorkerTelemetry,
        stop: asyncio.Event,
        sessions: Sessions | None = None,
    ) -> None:
        self._sessions = sessions
        self._options = options
        self._context = context
        self._engine = context.engine
        self._supervisor = supervisor
        self._loader = loader
        self._loads = loads
        self._controller = controller
        self._telemetry = telemetry
        self._stop = stop
        self._ended = asyncio.Event()
        self._groups: dict[str, ClaimedWork] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self.window = Window(size=options.window.first_window())
        self._permits = Permits(self.window.size)
        self._failed_group: asyncio.Future[None] | None = None
        self._evaluation: asyncio.Task[None] | None = None  # received instead of a group for a session

    async def run(self) -> Ending:
        self._failed_group = asyncio.get_running_loop().create_future()
        engine_task = asyncio.create_task(self._supervisor.run())
        loops = [
            asyncio.create_task(self._claim_groups()),
            asyncio.create_task(self._renew_claims()),
            asyncio.create_task(self._report()),
            asyncio.create_task(self._adapt_window()),
        ]
        if self._sessions is not None:
            self._sessions.manager.serve(self._claim_for_session)
            loops.append(asyncio.create_task(self._sessions.manager.run()))
        stopping = asyncio.create_task(self._stop.wait())
        ended = asyncio.create_task(self._ended.wait())
        watched: set[asyncio.Future[Any]] = {engine_task, *loops, stopping, ended, self._failed_group}
        try:
            done, _pending = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            loops[0].cancel()
            if self._ended.is_set() or (
                engine_task.done() and not engine_task.cancelled() and not engine_task.exception()
            ):
                await self._cancel_groups()
            else:
                await self._release_groups()
            tasks = [engine_task, *loops, stopping, ended, *([self._evaluation] if self._evaluation else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._telemetry.publish(self._engine, self._loads, now=time.time())
        if self._stop.is_set() and not self._ended.is_set():
            await deregister(self._controller, self._options.worker_id)
            return "stopped"
        return "ended"

    async def _claim_groups(self) -> None:
        while True:
            await self._engine.wait_open()
            free = self._permits.free
            if free <= 0:
                await self._permits.wait_for_change()
                continue
            # Groups of agent sessions are claimed one at a time, when an agent opens a session.
            max_groups = 0 if self._sessions is not None else -(-free // self._options.group_size)
            reply = await self._claim(max_groups, wait_seconds=CLAIM_POLL_SECONDS)
            if reply.ended:
                return
            if reply.evaluation is not None:
                await self._evaluate(reply.evaluation)
            for claimed in reply.groups:
                self._begin(
                    GroupTask(
                        claimed,
                        options=self._options,
                        context=self._context,
                        controller=self._controller,
                        permits=self._permits,
                    )
                )
            if reply.refusal == "engine_behind":
                await asyncio.sleep(BEHIND_SECONDS)  # the loader is about to load the newer version

    async def _claim(self, groups: int, *, wait_seconds: float) -> ClaimReply:
        """Claim groups, and note the end of the run if the reply says so."""
        reply = await self._controller.call(
            "claim",
            ClaimRequest(
                worker_id=self._options.worker_id,
                engine_version=self._engine.loaded_version,
                max_groups=groups,
                wait_seconds=wait_seconds,
            ),
            ClaimReply,
        )
        if reply.ended:
            self._ended.set()
        return reply

    def _begin(self, work: ClaimedWork) -> asyncio.Task[None]:
        self._groups[work.claim_id] = work
        running = self._running[work.claim_id] = asyncio.create_task(work.run())
        running.add_done_callback(partial(self._group_done, work.claim_id))
        return running

    async def _claim_for_session(self) -> SessionGroup | Refusal:
        assert self._sessions is not None
        sessions = self._sessions
        if self._ended.is_set() or self._stop.is_set():
            return "run_ending"
        if not self._engine.is_open:
            return "engine_behind"
        reply = await self._claim(1, wait_seconds=0.0)
        if reply.evaluation is not None:
            # In a task of its own, so that the agent that opens a session does not wait for it.
            self._evaluation = asyncio.create_task(self._evaluate(reply.evaluation))
        if not reply.groups:
            return "run_ending" if reply.ended else reply.refusal or "paused"
        group = SessionGroup(
            reply.groups[0],
            worker_id=self._options.worker_id,
            config=sessions.config,
            policy=PolicyClient(
                context=self._context, permits=self._permits, temperature=self._options.temperature
            ),
            controller=self._controller,
            now=time.monotonic(),
        )
        self._begin(group).add_done_callback(lambda _: sessions.manager.group_reported(group))
        return group

    async def _renew_claims(self) -> None:
        while True:
            reply = await self._controller.call(
                "renew",
                RenewRequest(worker_id=self._options.worker_id, claim_ids=list(self._groups)),
                RenewReply,
            )
            for claim_id in reply.lost:
                task = self._groups.get(claim_id)
                if task is not None:
                    log.info("claim %s expired: aborting its requests", claim_id)
                    await task.interrupt("lost")
            if reply.ended:
                self._ended.set()
                return
            await asyncio.sleep(RENEW_SECONDS)

    async def _adapt_window(self) -> None:
        counters = self._engine.counters
        retractions = 0
        while True:
            counters.window = self.window.size
            await asyncio.sleep(ADAPT_SECONDS)
            if not self._engine.is_open:
                continue
            try:
                load = counters.load = await self._engine.client.load()
            except EngineError:
                continue  # the supervisor handles a crashing engine
            if load is None:  # an older server without /v1/loads: use the spec's bound
                self.window = Window(size=self._options.window.max_rollouts)
                self._permits.resize(self.window.size)
                continue
            sample = LoadSample(
                running_requests=load.running_requests,
                waiting_requests=load.waiting_requests,
                kv_cache_frac=load.kv_cache_frac,
                retractions=counters.retractions - retractions,
                held=self._permits.held,
            )
            retractions = counters.retractions
            self.window = aimd_update(self.window, sample, self._options.window)
            self._permits.resize(self.window.size)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            self._telemetry.publish(self._engine, self._loads, now=time.time())

    async def _evaluate(self, task: EvaluationTask) -> None:
        """Evaluate with the version pinned. Without a result, the controller's timeout reassigns the task."""
        async with self._loader.pinned:
            newest = self._engine.loaded_version
            try:
                if newest != task.version:
                    if task.weights is None:
                        return
                    # Running groups must not get tokens of old weights: release them, so that they resume later.
                    await self._release_groups()
                    await self._loader.load_version(task.weights)
                since = self._engine.timeline.now()
                result = await self._run_evaluation(task)
                self._engine.timeline.add("evaluate", start=since, version=task.version)
            except (RewardFailed, WorkflowFailed, InvalidWeights, EngineError) as error:
                self._telemetry.note("evaluation_failed", f"evaluation {task.label}: {error}")
                result = None
                failure = EvaluationFailure(
                    worker_id=self._options.worker_id,
                    task_id=task.task_id,
                    cause=error_cause(error),
                    message=str(error),
                )
                await self._controller.call("evaluation_failed", failure, Ack)
                await asyncio.sleep(1.0)
            if self._engine.is_open and self._engine.loaded_version < newest:
                await self._loader.load_latest()
        if result is not None:
            await self._controller.call("evaluation_result", result, Ack)

    async def _run_evaluation(self, task: EvaluationTask) -> EvaluationResult | None:
        """Return None if the engine crashed. The next engine cannot load weights while this version is pinned."""
        log.info("evaluation %s: %d prompts at version %d", task.label, len(task.prompts), task.version)
        scoring = asyncio.create_task(evaluate(task, self._context, worker_id=self._options.worker_id))
        crashed = asyncio.create_task(self._engine.wait_closed())
        try:
            await asyncio.wait({scoring, crashed}, return_when=asyncio.FIRST_COMPLETED)
            if not scoring.done():
                self._telemetry.note("evaluation_repeated", f"evaluation {task.label}: its engine crashed")
                return None
            return scoring.result()
        finally:
            scoring.cancel()
            crashed.cancel()

    async def _cancel_groups(self) -> None:
        """Cancel all groups: the run has ended, and the controller may have exited already."""
        left = list(self._running.values())
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _release_groups(self) -> None:
        """Release all groups with their tokens before the engine is stopped."""
        await asyncio.gather(*(task.interrupt("release") for task in self._groups.values()))
        results = await asyncio.gather(*self._running.values(), return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                log.warning("a group was not released: %s", result)

    def _group_done(self, claim_id: str, task: asyncio.Task[None]) -> None:
        del self._groups[claim_id]
        del self._running[claim_id]
        if task.cancelled() or self._failed_group is None or self._failed_group.done():
            return
        error = task.exception()
        if isinstance(error, RpcError) and self._ended.is_set():
            return
        if error is not None:
            self._failed_group.set_exception(error)
