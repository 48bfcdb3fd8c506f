"""A worker that borrows an idle slot for one evaluation and exits when the evaluation is done.

It claims no groups and follows no versions. It sends heartbeats to the controller, and the reply says whether the
evaluation is still wanted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any, Literal, Protocol

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
from oolong.system.rpc import RpcClient
from oolong.workflow import WorkflowFailed

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
RETRY_SECONDS = 1.0  # after a failed evaluation


class EngineLife(Protocol):
    """Runs the engine's process, and `Evaluator.keep_current` while it serves."""

    def run(self) -> Coroutine[Any, Any, None]: ...


class Evaluator:
    """`run` returns when the controller releases this evaluator, or when `stop` is set."""

    def __init__(
        self,
        *,
        worker_id: str,
        task_id: str,
        context: RolloutContext,
        loader: WeightLoader,
        controller: RpcClient,
        telemetry: EvaluatorTelemetry,
        stop: asyncio.Event,
    ) -> None:
        self._worker_id = worker_id
        self._task_id = task_id
        self._context = context
        self._loader = loader
        self._controller = controller
        self._telemetry = telemetry
        self._stop = stop

    async def run(self, engine: EngineLife) -> Literal["ended", "stopped"]:
        """Raises EngineCrashLoop and RpcUnavailable."""
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(engine.run()),
            asyncio.create_task(self._send_heartbeats()),
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
        """Evaluate until the controller has no more tasks. Raises EngineUnavailable."""
        while (task := (await self._request_task(ready=True)).task) is not None:
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
                await asyncio.sleep(RETRY_SECONDS)

    async def _evaluate(self, client: EngineClient, task: EvaluationTask) -> None:
        if task.weights is None:
            raise InvalidWeights(f"{task.task_id} has no weights for its version")
        if self._context.engine.loaded_version != task.version:
            await self._loader.load(client, task.weights)
        log.info("evaluation %s: %d prompts at version %d", task.label, len(task.prompts), task.version)
        result = await evaluate(task, self._context, worker_id=self._worker_id)
        await self._controller.call("evaluation_result", result, Ack)

    async def _send_heartbeats(self) -> None:
        """Send heartbeats until the controller releases this evaluator."""
        while not (await self._request_task(ready=False)).leave:
            self._telemetry.publish(now=time.time())
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _request_task(self, *, ready: bool) -> EvaluatorReply:
        request = EvaluatorRequest(worker_id=self._worker_id, task_id=self._task_id, ready=ready)
        return await self._controller.call("evaluator", request, EvaluatorReply)


class EvaluatorTelemetry:
    """Reports the engine's busy time and notes; an evaluator has no other metrics."""

    def __init__(self, job: Job, outbox: Outbox, counters: EngineCounters) -> None:
        self._job = job
        self._outbox = outbox
        self._counters = counters
        self._reported_seconds = 0.0
        self._last_x = -1

    def publish(self, *, now: float) -> None:
        x = self._job.seconds_since_start(now)
        seconds = self._counters.busy_seconds
        if seconds == self._reported_seconds or x <= self._last_x:  # two points at one x would conflict
            return
        values = {"evaluator/busy_seconds": seconds - self._reported_seconds}
        self._outbox.write(Points(axis="time", x=x, values=values))
        self._reported_seconds, self._last_x = seconds, x

    def boot(self, done: bool) -> None:
        """Log only: an evaluator's boot is no part of the run's progress."""
        log.info("the engine %s", "serves" if done else "boots")
        if done:
            mark_ready(self._job.directory)

    def note(self, kind: str, message: str) -> None:
        self._outbox.write(Note(kind=kind, message=message))

    def close(self) -> None:
        self._outbox.close()
