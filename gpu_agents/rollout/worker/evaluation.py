"""Run one evaluation: every prompt once greedily and N times sampled, at one policy version."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from itertools import compress
from typing import Literal

from gpu_agents.rollout.engines.errors import EngineError
from gpu_agents.rollout.worker.episode import Prompt, RolloutContext
from gpu_agents.rollout.worker.rollout_state import RolloutState
from gpu_agents.rollout.worker.scoring import RewardFailed, Scorer
from oolong.contracts.rollout import (
    EvaluationPrompt,
    EvaluationResult,
    EvaluationTask,
    SampledText,
    ScoreReply,
)
from oolong.workflow import WorkflowFailed


async def evaluate(task: EvaluationTask, context: RolloutContext, *, worker_id: str) -> EvaluationResult:
    """Score all prompts with the run's workflow. A score is the reward function's last value, without discount.

    Raises EngineError unless every token is of the task's version, and RewardFailed or WorkflowFailed when a completion
    cannot be scored: a mean over the rest would be biased.
    """
    started = time.monotonic()
    context = replace(
        context,
        limits=replace(context.limits, max_new_tokens=task.max_new_tokens or context.limits.max_new_tokens),
        scorer=context.scorer.for_evaluation(timeout_seconds=task.reward_timeout_seconds),
    )
    texts: list[SampledText] = []
    if task.texts_only:
        context = replace(context, scorer=_TextCollector(texts))
    tokens: list[int] = []
    truncated: list[bool] = []

    async def score(prompt: EvaluationPrompt, temperature: float, sample: int = 0) -> float:
        rollout = RolloutState(index=0, seed=context.seed_of(task.label, prompt.index, sample))
        value = await context.run(
            rollout,
            Prompt(
                row=prompt.index, token_ids=prompt.prompt_token_ids, text=prompt.prompt, answer=prompt.answer
            ),
            temperature=temperature,
            interrupted=lambda: False,
        )
        if set(compress(rollout.versions, rollout.loss_mask)) != {task.version}:
            raise EngineError(
                f"evaluation {task.label}: a completion was sampled by versions {sorted(set(rollout.versions))}, "
                f"not by {task.version} alone"
            )
        tokens.append(rollout.sampled_tokens)
        truncated.append(rollout.finish_reason == "length")
        return value if rollout.score is None else rollout.score

    greedy, sampled = await asyncio.gather(
        asyncio.gather(*(score(prompt, 0.0) for prompt in task.prompts if task.greedy)),
        asyncio.gather(
            *(
                asyncio.gather(*(score(prompt, task.temperature, sample) for sample in range(task.samples)))
                for prompt in task.prompts
            )
        ),
    )
    return EvaluationResult(
        worker_id=worker_id,
        task_id=task.task_id,
        greedy_scores=list(greedy),
        sampled_scores=[list(scores) for scores in sampled],
        mean_tokens=sum(tokens) / len(tokens),
        truncated_frac=sum(truncated) / len(truncated),
        seconds=time.monotonic() - started,
        texts=texts,
    )


def error_cause(error: Exception) -> Literal["reward", "workflow", "engine"]:
    """Classify the error for the controller."""
    if isinstance(error, RewardFailed):
        return "reward"
    return "workflow" if isinstance(error, WorkflowFailed) else "engine"


class _TextCollector(Scorer):
    """Replaces the scorer: collects the completions without scoring them."""

    def __init__(self, texts: list[SampledText]) -> None:
        self._texts = texts

    async def score(
        self, *, prompt: str, answer: str, completion: str, finish_reason: str, row: int = -1
    ) -> ScoreReply:
        self._texts.append(SampledText(row=row, text=completion, finish_reason=finish_reason))
        return ScoreReply(status="ok", score=0.0)
