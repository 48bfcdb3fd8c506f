"""Evaluations at pinned versions: at most one at a time, by one engine: an evaluator that joined for it, or one leased
from the run (SEMANTICS section 9)."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_agents.rollout.controller.evaluation_scores import EvaluationScores, score_evaluation, score_prompts
from gpu_agents.rollout.controller.evaluator_pool import EvaluatorPool
from oolong.contracts.evaluation import PromptScores
from oolong.contracts.rollout import (
    EvaluationFailure,
    EvaluationPrompt,
    EvaluationResult,
    EvaluationTask,
    PublishedWeights,
    SampledText,
    task_id_of,
)

# An engine that has the version already goes first; after this time any engine may load it again.
SAME_VERSION_SECONDS = 5.0
ATTEMPTS = 3  # at one evaluation, before it is given up
REQUESTED_PREFIX = (
    "asked-"  # of the labels of evaluations that a user requested, and so consented to their cost
)


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    prompts: list[EvaluationPrompt]
    samples: int
    temperature: float
    at_start: bool
    at_end: bool
    greedy: bool = True
    every_steps: int | None = None
    max_new_tokens: int | None = None
    success_score: float = 1.0
    allow_blocking: bool = False  # consent that generation stops during an evaluation
    reward_timeout_seconds: float = 15.0
    texts_only: bool = False  # of a reward test: sampled, and not scored
    evaluator_seconds: float = (
        0.0  # how long an evaluation between steps waits for an evaluator; 0: requests none
    )

    def is_due(self, version: int) -> bool:
        return self.every_steps is not None and version > 0 and version % self.every_steps == 0


class Evaluations:
    """The pending evaluation, the engine that runs it, and the results so far."""

    def __init__(
        self, plan: EvaluationPlan | None, scores: dict[str, EvaluationScores] | None = None
    ) -> None:
        self.plan = plan
        self.scores: dict[str, EvaluationScores] = dict(scores or {})
        self.pending: EvaluationTask | None = None
        self.failure: EvaluationFailure | None = None  # of the last one that was given up
        self.texts: list[SampledText] = []  # of one that was texts_only
        self.by_prompt: PromptScores | None = None  # of the newest finished one
        self.evaluators = EvaluatorPool()
        self._failures = 0  # of the pending one
        self._worker_id = ""
        self._open_since: float | None = None  # when an engine with another version first asked for it

    @property
    def worker_id(self) -> str:
        """Who runs the pending one; "" while nobody does."""
        return self._worker_id

    def request(self, label: str, weights: PublishedWeights) -> bool:
        """Make it the pending one. False if there is no plan, or it was done before a recovery."""
        if self.plan is None or label in self.scores:
            return False
        self.pending = EvaluationTask(
            task_id=task_id_of(label, weights.version),
            version=weights.version,
            weights=weights,
            label=label,
            prompts=self.plan.prompts,
            greedy=self.plan.greedy,
            samples=self.plan.samples,
            temperature=self.plan.temperature,
            max_new_tokens=self.plan.max_new_tokens,
            reward_timeout_seconds=self.plan.reward_timeout_seconds,
            texts_only=self.plan.texts_only,
        )
        self._worker_id = ""
        self._failures = 0
        self._open_since = None
        if self.plan.evaluator_seconds and is_between_steps(self.pending):
            self.evaluators.request(self.pending.task_id, wait_seconds=self.plan.evaluator_seconds)
        return True

    def lease(
        self, worker_id: str, engine_version: int, *, live_engines: int, now: float
    ) -> EvaluationTask | None:
        """The pending task, if this engine of the run may have it and no other engine runs it."""
        task = self.pending
        if task is None or self.plan is None or self._worker_id not in ("", worker_id):
            return None
        between_steps = is_between_steps(task)
        if not self._worker_id and self.evaluators.poll(now=now):
            return None
        consented = self.plan.allow_blocking or task.label.startswith(REQUESTED_PREFIX)
        if between_steps and live_engines < 2 and not consented and not self._worker_id:
            return None
        if engine_version != task.version and not self._may_load_again(between_steps, now=now):
            return None
        self._worker_id = worker_id
        self.evaluators.cancel()
        return task

    def lease_to_evaluator(self, worker_id: str, task_id: str, *, starts: bool) -> EvaluationTask | None:
        """The task that it joined for; None if the task is gone or another engine runs it."""
        task = self.pending
        if task is None or task.task_id != task_id or self._worker_id not in ("", worker_id):
            return None
        if starts:
            self._worker_id = worker_id
        return task

    def remove_evaluator(self, worker_id: str) -> bool:
        """Release its task to another evaluator or an engine of the run. False if it was not registered."""
        if not self.evaluators.remove(worker_id):
            return False
        self.release(worker_id)
        return True

    def release(self, worker_id: str) -> None:
        """Its worker is gone: another one may take the task."""
        if self._worker_id == worker_id:
            self._worker_id = ""

    def finish(self, result: EvaluationResult) -> tuple[EvaluationTask, EvaluationScores] | None:
        """Record a result; None if it is not of the pending task (a repeated or outdated call)."""
        task = self.pending
        if task is None or self.plan is None or result.task_id != task.task_id:
            return None
        scores = score_evaluation(
            version=task.version,
            greedy=result.greedy_scores,
            sampled=result.sampled_scores,
            success_score=self.plan.success_score,
            mean_tokens=result.mean_tokens,
            truncated_frac=result.truncated_frac,
            seconds=result.seconds,
            sources=[prompt.source for prompt in task.prompts],
        )
        self.by_prompt = score_prompts(
            label=task.label,
            version=task.version,
            prompts=task.prompts,
            greedy=result.greedy_scores,
            sampled=result.sampled_scores,
            success_score=self.plan.success_score,
        )
        self.scores[task.label] = scores
        self.texts = result.texts
        self.abandon()
        return task, scores

    def fail(self, failure: EvaluationFailure) -> EvaluationTask | None:
        """Count a failed attempt at the pending task. Returns the task after the last attempt: it is given up."""
        task = self.pending
        if task is None or failure.task_id != task.task_id:
            return None
        evaluator = self.evaluators.get(failure.worker_id)
        if evaluator is not None and failure.cause == "engine":
            # The evaluator's own engine failed: another engine may still succeed.
            evaluator.dismissed = True
            self.release(failure.worker_id)
            return None
        self._failures += 1
        if self._failures < ATTEMPTS:
            return None
        self.failure = failure
        self.abandon()
        return task

    def abandon(self) -> None:
        self.pending = None
        self._worker_id = ""
        self.evaluators.cancel()

    def _may_load_again(self, between_steps: bool, *, now: float) -> bool:
        if not between_steps:  # the run waits for these: only an engine that has the version runs them
            self._worker_id = ""
            return False
        if self._worker_id:
            return True
        if self._open_since is None:
            self._open_since = now
        return now - self._open_since >= SAME_VERSION_SECONDS


def is_between_steps(task: EvaluationTask) -> bool:
    """Whether the run continues during it; it waits for the evaluations of its start and its end."""
    return task.label not in ("start", "end")
