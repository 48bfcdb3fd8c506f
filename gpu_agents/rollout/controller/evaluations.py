"""Evaluations at pinned versions: at most one at a time, leased to one engine (SEMANTICS section 9)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from oolong.contracts.rollout import EvaluationPrompt, EvaluationResult, EvaluationTask


class EvaluationScores(msgspec.Struct, frozen=True, kw_only=True):
    """Mean scores of one evaluation, as the summary keeps them."""

    version: int
    prompts: int
    greedy: float
    sampled: float | None  # None when no completion was sampled
    mean_tokens: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    prompts: list[EvaluationPrompt]
    samples: int
    temperature: float
    at_start: bool
    at_end: bool


class Evaluations:
    """What is to be evaluated, who does it, and what came of it."""

    def __init__(
        self, plan: EvaluationPlan | None, scores: dict[str, EvaluationScores] | None = None
    ) -> None:
        self.plan = plan
        self.scores: dict[str, EvaluationScores] = dict(scores or {})
        self.pending: EvaluationTask | None = None
        self._worker_id = ""

    def request(self, label: str, version: int) -> bool:
        """Ask for one; False when there is no plan or it is done already (before a recovery)."""
        if self.plan is None or label in self.scores:
            return False
        self.pending = EvaluationTask(
            task_id=f"{label}-v{version}",
            version=version,
            label=label,
            prompts=self.plan.prompts,
            samples=self.plan.samples,
            temperature=self.plan.temperature,
        )
        self._worker_id = ""
        return True

    def lease(self, worker_id: str, engine_version: int) -> EvaluationTask | None:
        """The pending task, if this engine has its version and nobody else is at it."""
        if self.pending is None or self._worker_id not in ("", worker_id):
            return None
        if engine_version != self.pending.version:
            self.release(worker_id)  # it loaded a newer version before it began
            return None
        self._worker_id = worker_id
        return self.pending

    @property
    def worker_id(self) -> str:
        return self._worker_id

    def release(self, worker_id: str) -> None:
        """Its worker is gone: another one may take the task."""
        if self._worker_id == worker_id:
            self._worker_id = ""

    def finish(self, result: EvaluationResult) -> tuple[EvaluationTask, EvaluationScores] | None:
        """Record a result; None when it is not the pending task (a repeated or outdated call)."""
        task = self.pending
        if task is None or result.task_id != task.task_id:
            return None
        sampled = [score for row in result.sampled_scores for score in row]
        scores = EvaluationScores(
            version=task.version,
            prompts=len(result.greedy_scores),
            greedy=sum(result.greedy_scores) / len(result.greedy_scores),
            sampled=sum(sampled) / len(sampled) if sampled else None,
            mean_tokens=result.mean_tokens,
            seconds=result.seconds,
        )
        self.scores[task.label] = scores
        self.abandon()
        return task, scores

    def abandon(self) -> None:
        self.pending = None
        self._worker_id = ""
