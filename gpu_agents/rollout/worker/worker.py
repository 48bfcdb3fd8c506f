"""The worker's loops: keep the engine filled with claimed groups, keep the claims alive, say what it measures."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from gpu_agents.channel import CallRefused, Peer
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
from oolong.workflow import WorkflowFailed

log = logging.getLogger(__name__)

RENEW_SECONDS = 5.0
REPORT_SECONDS = 5.0
ADAPT_SECONDS = 5.0
CLAIM_POLL_SECONDS = 5.0
BEHIND_SECONDS = 0.05

Ending = Literal["ended", "stopped"]


class ClaimedWork(Protocol):
    """What is done for a claim: a workflow per member, or a session per member."""

    @property
    def claim_id(self) -> str: ...

    async def run(self) -> None: ...

    async def interrupt(self, interruption: Interruption) -> None: ...


@dataclass(frozen=True)
class Sessions:
    """Of a run whose rollouts are made by agents outside it."""

    desk: SessionManager
    rules: SessionConfig


class Worker:
    """One engine's worker. `run` returns when the run has ended, or when `stop` is set and all is given back."""

    def __init__(
        self,
        *,
        options: WorkerConfig,
        stage: RolloutContext,
        supervisor: EngineSupervisor,
        loader: WeightLoader,
        loads: list[Load],
        controller: Peer,
        telemetry: WorkerTelemetry,
        stop: asyncio.Event,
        sessions: Sessions | None = None,
    ) -> None:
        self._sessions = sessions
        self._options = options
        self._stage = stage
        self._slot = stage.slot
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
        self._places = Permits(self.window.size)
        self._failed_group: asyncio.Future[None] | None = None
        self._evaluation: asyncio.Task[None] | None = None  # that came in place of a group for a session

    async def run(self) -> Ending:
        self._failed_group = asyncio.get_running_loop().create_future()
        engine = asyncio.create_task(self._supervisor.run())
        loops = [
            asyncio.create_task(self._claim_groups()),
            asyncio.create_task(self._renew_claims()),
            asyncio.create_task(self._report()),
            asyncio.create_task(self._adapt_window()),
        ]
        if self._sessions is not None:
            self._sessions.desk.serve(self._claim_for_session)
            loops.append(asyncio.create_task(self._sessions.desk.run()))
        stopping = asyncio.create_task(self._stop.wait())
        ended = asyncio.create_task(self._ended.wait())
        watched: set[asyncio.Future[Any]] = {engine, *loops, stopping, ended, self._failed_group}
        try:
            done, _pending = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            loops[0].cancel()
            if self._ended.is_set() or (engine.done() and not engine.cancelled() and not engine.exception()):
                await self._let_everything_go()
            else:
                await self._hand_everything_back()
            tasks = [engine, *loops, stopping, ended, *([self._evaluation] if self._evaluation else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._telemetry.publish(self._slot, self._loads, now=time.time())
        if self._stop.is_set() and not self._ended.is_set():
            await deregister(self._controller, self._options.worker_id)
            return "stopped"
        return "ended"

    async def _claim_groups(self) -> None:
        while True:
            await self._slot.wait_open()
            free = self._places.free
            if free <= 0:
                await self._places.wait_for_room()
                continue
            # Groups of agent sessions are claimed one by one, when an agent comes for one.
            wanted = 0 if self._sessions is not None else -(-free // self._options.group_size)
            reply = await self._claim(wanted, wait_seconds=CLAIM_POLL_SECONDS)
            if reply.ended:
                return
            if reply.evaluation is not None:
                await self._evaluate(reply.evaluation)
            for claimed in reply.groups:
                self._begin(
                    GroupTask(
                        claimed,
                        options=self._options,
                        stage=self._stage,
                        controller=self._controller,
                        places=self._places,
                    )
                )
            if reply.refusal == "engine_behind":
                await asyncio.sleep(BEHIND_SECONDS)  # the loader is about to take the newer version over

    async def _claim(self, groups: int, *, wait_seconds: float) -> ClaimReply:
        """Ask for groups; the end of the run that comes instead is noted."""
        reply = await self._controller.call(
            "claim",
            ClaimRequest(
                worker_id=self._options.worker_id,
                engine_version=self._slot.loaded_version,
                max_groups=groups,
                running_groups=len(self._groups),
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
        if not self._slot.is_open:
            return "engine_behind"
        reply = await self._claim(1, wait_seconds=0.0)
        if reply.evaluation is not None:
            # Not here: whoever came for a session is not to wait for it.
            self._evaluation = asyncio.create_task(self._evaluate(reply.evaluation))
        if not reply.groups:
            return "run_ending" if reply.ended else reply.refusal or "paused"
        group = SessionGroup(
            reply.groups[0],
            worker_id=self._options.worker_id,
            rules=sessions.rules,
            policy=PolicyClient(
                stage=self._stage, places=self._places, temperature=self._options.temperature
            ),
            controller=self._controller,
            now=time.monotonic(),
        )
        self._begin(group).add_done_callback(lambda _: sessions.desk.over(group))
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
                    log.info("claim %s is lost: its requests are aborted", claim_id)
                    await task.interrupt("lost")
            if reply.ended:
                self._ended.set()
                return
            await asyncio.sleep(RENEW_SECONDS)

    async def _adapt_window(self) -> None:
        meters = self._slot.meters
        retractions = 0
        while True:
            meters.window = self.window.size
            await asyncio.sleep(ADAPT_SECONDS)
            if not self._slot.is_open:
                continue
            try:
                load = meters.load = await self._slot.client.load()
            except EngineError:
                continue  # it is dying, which the supervisor sees too
            if load is None:  # an older server: nothing to go by but the spec's bound
                self.window = Window(size=self._options.window.most)
                self._places.resize(self.window.size)
                continue
            pressure = LoadSample(
                running_requests=load.running_requests,
                waiting_requests=load.waiting_requests,
                kv_cache_frac=load.kv_cache_frac,
                retractions=meters.retractions - retractions,
                held=self._places.held,
            )
            retractions = meters.retractions
            self.window = aimd_update(self.window, pressure, self._options.window)
            self._places.resize(self.window.size)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            self._telemetry.publish(self._slot, self._loads, now=time.time())

    async def _evaluate(self, task: EvaluationTask) -> None:
        """Hold the version while it lasts; a result that cannot be had is left to the controller's clock."""
        async with self._loader.pinned:
            newest = self._slot.loaded_version
            try:
                if newest != task.version:
                    if task.weights is None:
                        return
                    # Their next tokens are not to be of old weights: they go on elsewhere, or here afterwards.
                    await self._hand_everything_back()
                    await self._loader.load_version(task.weights)
                result = await self._play_evaluation(task)
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
            if self._slot.is_open and self._slot.loaded_version < newest:
                await self._loader.load_latest()
        if result is not None:
            await self._controller.call("evaluation_result", result, Ack)

    async def _play_evaluation(self, task: EvaluationTask) -> EvaluationResult | None:
        """None when the engine died of it: the next one must load before it can serve, and this holds the version."""
        log.info("evaluation %s: %d prompts at version %d", task.label, len(task.prompts), task.version)
        scoring = asyncio.create_task(evaluate(task, self._stage, worker_id=self._options.worker_id))
        gone = asyncio.create_task(self._slot.wait_gone())
        try:
            await asyncio.wait({scoring, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not scoring.done():
                self._telemetry.note("evaluation_repeated", f"evaluation {task.label}: its engine died")
                return None
            return scoring.result()
        finally:
            scoring.cancel()
            gone.cancel()

    async def _let_everything_go(self) -> None:
        """The run has ended: nobody wants what is left, and the controller may be gone already."""
        left = list(self._running.values())
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _hand_everything_back(self) -> None:
        """Give groups back with their tokens before the engine is signalled."""
        await asyncio.gather(*(task.interrupt("give_back") for task in self._groups.values()))
        results = await asyncio.gather(*self._running.values(), return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                log.warning("a group was not given back: %s", result)

    def _group_done(self, claim_id: str, task: asyncio.Task[None]) -> None:
        del self._groups[claim_id]
        del self._running[claim_id]
        if task.cancelled() or self._failed_group is None or self._failed_group.done():
            return
        error = task.exception()
        if isinstance(error, CallRefused) and self._ended.is_set():
            return
        if error is not None:
            self._failed_group.set_exception(error)
