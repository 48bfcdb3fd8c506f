"""An evaluation on a leased engine: every prompt greedy once and sampled as often as asked, at one version."""

from __future__ import annotations

import asyncio
import time

from gpu_agents.rollout.worker.engine_slot import EngineSlot
from gpu_agents.rollout.worker.member import Member, sample_member
from gpu_agents.rollout.worker.scoring import Scorer
from oolong.contracts.rollout import EvaluationPrompt, EvaluationResult, EvaluationTask


async def evaluate(
    task: EvaluationTask, *, worker_id: str, slot: EngineSlot, scorer: Scorer, max_new_tokens: int
) -> EvaluationResult:
    """Raises RewardFailed when a completion cannot be scored: a mean over the rest would mislead."""
    started = time.monotonic()
    tokens: list[int] = []

    async def score(prompt: EvaluationPrompt, temperature: float) -> float:
        member = Member(index=0)
        await sample_member(
            member,
            slot,
            prompt.prompt_token_ids,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            interrupted=lambda: False,
        )
        if member.finish is None:
            raise AssertionError("an evaluation is never interrupted")
        tokens.append(len(member.token_ids))
        return await scorer.score(
            prompt=prompt.prompt,
            answer=prompt.answer,
            token_ids=member.token_ids,
            finish_reason=member.finish,
            row=prompt.index,
        )

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
