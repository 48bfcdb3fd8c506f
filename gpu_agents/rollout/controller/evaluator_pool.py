"""Engines that join for one evaluation and are not engines of the run: requested, awaited within bounds, dismissed.

They do not count in the gate, the claims or the engine registry. Each joins for one task and leaves when the task is
gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_agents.rollout.controller.engine_registry import ENGINE_TIMEOUT_SECONDS

BOOT_SECONDS = 600.0  # how long an evaluator that has joined may boot before the run's engines take its task
MAX_EVALUATORS_PER_TASK = 2  # a task that two evaluators have left is not offered to a third


@dataclass(kw_only=True)
class Evaluator:
    worker_id: str
    task_id: str  # that it joined for
    joined_at: float
    last_seen_at: float
    dismissed: bool = False  # it was told to leave


class EvaluatorPool:
    """The evaluators that have joined, and the task for which one is requested."""

    def __init__(self) -> None:
        self.requested_task = ""  # id of the task that needs an evaluator
        self.has_priority = False  # the run's engines leave the task to an evaluator for now; see `poll`
        self.wait_seconds = 0.0
        self._requested_at: float | None = None
        self._joined = 0  # for the requested task
        self._evaluators: dict[str, Evaluator] = {}

    def request(self, task_id: str, *, wait_seconds: float) -> None:
        """Request an evaluator. Without one, the run's engines may take the task after `wait_seconds`."""
        self.requested_task, self.has_priority, self._requested_at, self._joined = task_id, True, None, 0
        self.wait_seconds = wait_seconds

    def cancel(self) -> None:
        self.requested_task, self.has_priority = "", False

    def poll(self, *, now: float) -> bool:
        """Whether an evaluator has priority over the run's engines, as of now."""
        if self._requested_at is None:
            self._requested_at = now
        joined = [
            one
            for one in self._evaluators.values()
            if one.task_id == self.requested_task and not one.dismissed
        ]
        if joined:
            self.has_priority = any(now - one.joined_at < BOOT_SECONDS for one in joined)
        else:
            self.has_priority = bool(self.requested_task) and now - self._requested_at < self.wait_seconds
        return self.has_priority

    def touch(self, worker_id: str, task_id: str, *, now: float) -> Evaluator:
        """Record a sign of life; the first one registers the evaluator."""
        evaluator = self._evaluators.get(worker_id)
        if evaluator is None:
            evaluator = Evaluator(worker_id=worker_id, task_id=task_id, joined_at=now, last_seen_at=now)
            self._evaluators[worker_id] = evaluator
            self._joined += task_id == self.requested_task
        evaluator.last_seen_at = now
        return evaluator

    def get(self, worker_id: str) -> Evaluator | None:
        return self._evaluators.get(worker_id)

    def remove(self, worker_id: str) -> bool:
        """False if it was not registered."""
        removed = self._evaluators.pop(worker_id, None)
        if (
            removed is not None
            and removed.task_id == self.requested_task
            and self._joined >= MAX_EVALUATORS_PER_TASK
        ):
            self.cancel()
        return removed is not None

    def others(self, worker_id: str, task_id: str) -> list[str]:
        """Other evaluators of the task. They have ended: the control plane grants one slot at a time for it."""
        return [
            e.worker_id
            for e in self._evaluators.values()
            if e.task_id == task_id and e.worker_id != worker_id
        ]

    def expired(self, *, now: float) -> list[str]:
        return [
            e.worker_id for e in self._evaluators.values() if now - e.last_seen_at > ENGINE_TIMEOUT_SECONDS
        ]

    def all(self) -> list[Evaluator]:
        return list(self._evaluators.values())
