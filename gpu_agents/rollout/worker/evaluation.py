"""An evaluation on a leased engine: every prompt greedy once and sampled as often as asked, at one version."""

from __future__ import annotations

import asyncio
import time

from gpu_agents.rollout.worker.episode import Prompt, Stage
from gpu_agents.rollout.worker.member import Member
from oolong.contracts.rollout import EvaluationPrompt, EvaluationResult, EvaluationTask


async def evaluate(task: EvaluationTask, stage: Stage, *, worker_id: str) -> EvaluationResult:
    """By the run's own workflow; the score is the reward function's last value, without discount.

    Raises RewardFailed, WorkflowFailed when a completion cannot be scored: a mean over the rest would mislead.
    """
    started = time.monotonic()
    tokens: list[int] = []

    async def score(prompt: EvaluationPrompt, temperature: float) -> float:
        member = Member(index=0)
        worth = await stage.play(
            member,
            Prompt(
                row=prompt.index, token_ids=prompt.prompt_token_ids, text=prompt.prompt, answer=prompt.answer
            ),
            temperature=temperature,
            interrupted=lambda: False,
        )
        tokens.append(member.sampled_tokens)
        return worth if member.score is None else member.score

    greedy, sampled = await asyncio.gather(
        asyncio.gather(*(score(prompt, 0.0) for prompt in task.prompts)),
        asyncio.gather(
            *(
                asyncio.gather(*(score(prompt, task.temperature) for _ in range(task.samples)))
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
        seconds=time.monotonic() - started,
    )
