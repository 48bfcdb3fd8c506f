"""Scores samples through the attempt's reward service, which runs untrusted code in its sandbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpu_agents.reward_test.types import STORED, Sample, ScoredSample, ScoreResult
from oolong.contracts.rollout import EvaluationPrompt, ScoreReply, ScoreRequest
from oolong.system.rpc import RpcClient, RpcError

CONCURRENCY = 8
QUEUE_SECONDS = 900.0  # a call may wait in the queue behind others


async def check_determinism(
    samples: Sequence[Sample], reward: RpcClient, *, timeout_seconds: float, done: Callable[[int], None]
) -> list[ScoredSample]:
    """Score every sample twice. Calls `done(count)` after each. Raises RpcUnavailable if the reward service is gone."""
    turn = asyncio.Semaphore(CONCURRENCY)
    finished = 0

    async def both(sample: Sample) -> ScoredSample:
        nonlocal finished
        async with turn:
            first = await _score(sample, reward, timeout_seconds=timeout_seconds)
            second = await _score(sample, reward, timeout_seconds=timeout_seconds)
        finished += 1
        done(finished)
        return ScoredSample(sample=sample, first=first, second=second)

    return list(await asyncio.gather(*map(both, samples)))


async def _score(sample: Sample, reward: RpcClient, *, timeout_seconds: float) -> ScoreResult:
    request = ScoreRequest(
        prompt=sample.prompt,
        completion=sample.completion,
        answer=sample.answer,
        finish_reason=sample.finish_reason,
        row=sample.row,
    )
    try:
        reply = await reward.call("score", request, ScoreReply, timeout=timeout_seconds + QUEUE_SECONDS)
    except RpcError as error:
        return ScoreResult(score=None, seconds=0.0, error=str(error))
    if reply.status != "ok" or reply.score is None:
        return ScoreResult(
            score=None, seconds=reply.seconds, error=reply.message or "no score and no error message"
        )
    return ScoreResult(score=reply.score, seconds=reply.seconds)


def stored_samples(
    file: str | Path, rows: Mapping[int, EvaluationPrompt], *, without_specials: Callable[[str], str]
) -> list[Sample]:
    """Read completions from a file: of a dataset row, or with their own prompt and answer."""
    samples = []
    for number, line in enumerate(Path(file).read_text().splitlines()):
        given = json.loads(line)
        row = rows.get(given["row"]) if given.get("row") is not None else None
        samples.append(
            Sample(
                # Completions without a row form groups by prompt, with negative row numbers.
                row=given["row"] if given.get("row") is not None else -1 - given.get("group", number),
                source=STORED,
                prompt=given.get("prompt") or (row.prompt if row else ""),
                answer=given["answer"] if given.get("answer") is not None else (row.answer if row else ""),
                completion=(
                    without_specials(given["completion"])
                    if given.get("special_tokens")
                    else given["completion"]
                ),
                finish_reason=given.get("finish_reason") or "stop",
            )
        )
    return samples
