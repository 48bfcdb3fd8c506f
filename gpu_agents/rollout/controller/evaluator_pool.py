"""Engines that come for one evaluation and are none of the run's: asked for, waited for within bounds, sent away.

They have no place in the gate, the claims or the engines of the run. What they came for is a task; whoever does not
find it any more leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_agents.rollout.controller.engine_registry import SILENT_AFTER_SECONDS

BOOT_SECONDS = 600.0  # the run's engines leave an evaluation alone for so long, once somebody has come for it
COME_AT_MOST = 2  # evaluators of one evaluation: whoever dies of it twice is not asked for a third time


@dataclass(kw_only=True)
class Evaluator:
    worker_id: str
    task_id: str  # that it came for
    came_at: float
    heard_at: float
    told_to_leave: bool = False


class EvaluatorPool:
    """Who is here, and for which task one is wanted."""

    def __init__(self) -> None:
        self.wanted = ""  # the id of a task
        self.goes_first = False  # the run's engines still leave the task to an evaluator; see `look`
        self.ask_seconds = 0.0
        self._asked_at: float | None = None
        self._came = 0  # for the task that is wanted
        self._here: dict[str, Evaluator] = {}

    def want(self, task_id: str, *, seconds: float) -> None:
        """Ask for one. The run's engines leave the task alone for so long, while nobody has come for it."""
        self.wanted, self.goes_first, self._asked_at, self._came = task_id, True, None, 0
        self.ask_seconds = seconds

    def want_none(self) -> None:
        self.wanted, self.goes_first = "", False

    def look(self, *, now: float) -> bool:
        """Whether the run's engines have to leave the task alone, as of now."""
        if self._asked_at is None:
            self._asked_at = now
        here = [one for one in self._here.values() if one.task_id == self.wanted and not one.told_to_leave]
        if here:
            self.goes_first = any(now - one.came_at < BOOT_SECONDS for one in here)
        else:
            self.goes_first = bool(self.wanted) and now - self._asked_at < self.ask_seconds
        return self.goes_first

    def hear(self, worker_id: str, task_id: str, *, now: float) -> Evaluator:
        evaluator = self._here.get(worker_id)
        if evaluator is None:
            evaluator = Evaluator(worker_id=worker_id, task_id=task_id, came_at=now, heard_at=now)
            self._here[worker_id] = evaluator
            self._came += task_id == self.wanted
        evaluator.heard_at = now
        return evaluator

    def of(self, worker_id: str) -> Evaluator | None:
        return self._here.get(worker_id)

    def leave(self, worker_id: str) -> bool:
        """It is gone, or is to go: nobody waits for it. False when it was not here."""
        gone = self._here.pop(worker_id, None)
        if gone is not None and gone.task_id == self.wanted and self._came >= COME_AT_MOST:
            self.want_none()
        return gone is not None

    def others(self, worker_id: str, task_id: str) -> list[str]:
        """Who else came for the task. They have ended by then: one at a time is given a slot for it."""
        return [e.worker_id for e in self._here.values() if e.task_id == task_id and e.worker_id != worker_id]

    def silent(self, *, now: float) -> list[str]:
        return [e.worker_id for e in self._here.values() if now - e.heard_at > SILENT_AFTER_SECONDS]

    def all(self) -> list[Evaluator]:
        return list(self._here.values())
