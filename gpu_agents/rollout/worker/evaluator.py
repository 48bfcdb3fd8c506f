"""A worker whose engine is none of the run's: it has a slot for one evaluation, and leaves when nothing is left of it.

It claims no group and follows no version. The controller waits for its signs of life, and it for the controller's word
that the evaluation is still wanted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any, Literal, Protocol

from gpu_agents.channel import Peer
from gpu_agents.job import Job
from gpu_agents.rollout.engines.client import EngineClient
from gpu_agents.rollout.engines.errors import EngineError, EngineUnavailable
from gpu_agents.rollout.worker.deregister import deregister
from gpu_agents.rollout.worker.engine_counters import EngineCounters
from gpu_agents.rollout.worker.episode import RolloutContext
from gpu_agents.rollout.worker.evaluation import error_cause, evaluate
from gpu_agents.rollout.worker.manifest import InvalidWeights
from gpu_agents.rollout.worker.scoring import RewardFailed
from gpu_agents.rollout.worker.weight_loader import WeightLoader
from oolong.contracts.attempt import mark_ready
from oolong.contracts.rollout import Ack, EvaluationFailure, EvaluationTask, EvaluatorReply, EvaluatorRequest
from oolong.contracts.telemetry import Note, Outbox, Points
from oolong.workflow import WorkflowFailed

log = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
AGAIN_SECONDS = 1.0  # after an evaluation that failed


class EngineLife(Protocol):
    """The engine's process from start to end, in which `Evaluator.keep_current` has its turn."""

    def run(self) -> Coroutine[Any, Any, None]: ...


class Evaluator:
    """`run` returns when the evaluation is nobody's any more, or when `stop` is set."""

    def __init__(
        self,
        *,
        worker_id: str,
        task_id: str,
        stage: RolloutContext,
        loader: WeightLoader,
        controller: Peer,
        telemetry: EvaluatorTelemetry,
        stop: asyncio.Event,
    ) -> None:
        self._worker_id = worker_id
        self._task_id = task_id
        self._stage = stage
        self._loader = loader
        self._controller = controller
        self._telemetry = telemetry
        self._stop = stop

    async def run(self, engine: EngineLife) -> Literal["ended", "stopped"]:
        """Raises EngineCrashLoop and PeerGone."""
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(engine.run()),
            asyncio.create_task(self._beat()),
            asyncio.create_task(self._stop.wait()),
        ]
        try:
            done, _pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._telemetry.publish(now=time.time())
            await deregister(self._controller, self._worker_id)
        return "stopped" if self._stop.is_set() else "ended"

    async def keep_current(self, client: EngineClient) -> None:
        """Of an engine that serves: evaluate until the controller has no more of it. Raises EngineUnavailable."""
        while (task := (await self._ask(ready=True)).task) is not None:
            try:
                await self._evaluate(client, task)
            except EngineUnavailable:
                raise
            except (RewardFailed, WorkflowFailed, InvalidWeights, EngineError) as error:
                self._telemetry.note("evaluation_failed", f"evaluation {task.label}: {error}")
                failure = EvaluationFailure(
                    worker_id=self._worker_id,
                    task_id=task.task_id,
                    cause=error_cause(error),
                    message=str(error),
                )
                await self._controller.call("evaluation_failed", failure, Ack)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _evaluate(self, client: EngineClient, task: EvaluationTask) -> None:
        if task.weights is None:
            raise InvalidWeights(f"{task.task_id} came without the weights of its version")
        if self._stage.slot.loaded_version != task.version:
            await self._loader.load(client, task.weights)
        log.info("evaluation %s: %d prompts at version %d", task.label, len(task.prompts), task.version)
        result = await evaluate(task, self._stage, worker_id=self._worker_id)
        await self._controller.call("evaluation_result", result, Ack)

    async def _beat(self) -> None:
        """Until the controller says that this one is to leave."""
        while not (await self._ask(ready=False)).leave:
            self._telemetry.publish(now=time.time())
            await asyncio.sleep(BEAT_SECONDS)

    async def _ask(self, *, ready: bool) -> EvaluatorReply:
        request = EvaluatorRequest(worker_id=self._worker_id, task_id=self._task_id, ready=ready)
        return await self._controller.call("evaluator", request, EvaluatorReply)


class EvaluatorTelemetry:
    """None of the run's own measurements: only what its slot was used for, and notes."""

    def __init__(self, job: Job, outbox: Outbox, meters: EngineCounters) -> None:
        self._job = job
        self._outbox = outbox
        self._meters = meters
        self._told_seconds = 0.0
        self._last_x = -1

    def publish(self, *, now: float) -> None:
        x = self._job.seconds_since_start(now)
        seconds = self._meters.busy_seconds
        if seconds == self._told_seconds or x <= self._last_x:  # a second point at one x would be a conflict
            return
        values = {"evaluator/busy_seconds": seconds - self._told_seconds}
        self._outbox.write(Points(axis="time", x=x, values=values))
        self._told_seconds, self._last_x = seconds, x

    def boot(self, done: bool) -> None:
        """Nobody waits for it: the run's own progress is elsewhere."""
        log.info("the engine %s", "serves" if done else "boots")
        if done:
            mark_ready(self._job.directory)

    def note(self, kind: str, message: str) -> None:
        self._outbox.write(Note(kind=kind, message=message))

    def close(self) -> None:
        self._outbox.close()
