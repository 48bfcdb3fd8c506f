"""Every sample is scored twice by the attempt's reward service; it runs what is untrusted in its sandbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpu_agents.bench.nouns import STORED, Outcome, Sample, Scored
from gpu_agents.channel import CallRefused, Peer
from oolong.contracts.rollout import EvaluationPrompt, ScoreReply, ScoreRequest

AT_ONCE = 8
PATIENCE_SECONDS = 900.0  # a call may wait for its turn behind the others


async def score_twice(
    samples: Sequence[Sample], reward: Peer, *, timeout_seconds: float, done: Callable[[int], None]
) -> list[Scored]:
    """`done(count)` is told after each. Raises PeerGone when the reward service went away."""
    turn = asyncio.Semaphore(AT_ONCE)
    finished = 0

    async def both(sample: Sample) -> Scored:
        nonlocal finished
        async with turn:
            first = await _score(sample, reward, timeout_seconds=timeout_seconds)
            second = await _score(sample, reward, timeout_seconds=timeout_seconds)
        finished += 1
        done(finished)
        return Scored(sample=sample, first=first, second=second)

    return list(await asyncio.gather(*map(both, samples)))


async def _score(sample: Sample, reward: Peer, *, timeout_seconds: float) -> Outcome:
    request = ScoreRequest(
        prompt=sample.prompt,
        completion=sample.completion,
        answer=sample.answer,
        finish_reason=sample.finish_reason,
        row=sample.row,
    )
    try:
        reply = await reward.call("score", request, ScoreReply, timeout=timeout_seconds + PATIENCE_SECONDS)
    except CallRefused as error:
        return Outcome(score=None, seconds=0.0, error=str(error))
    if reply.status != "ok" or reply.score is None:
        return Outcome(score=None, seconds=reply.seconds, error=reply.message or "no score and no reason")
    return Outcome(score=reply.score, seconds=reply.seconds)


def stored_samples(
    file: str | Path, rows: Mapping[int, EvaluationPrompt], *, without_specials: Callable[[str], str]
) -> list[Sample]:
    """Given completions: of a row of the dataset, or with a prompt and an answer of their own."""
    samples = []
    for number, line in enumerate(Path(file).read_text().splitlines()):
        given = json.loads(line)
        row = rows.get(given["row"]) if given.get("row") is not None else None
        samples.append(
            Sample(
                # Without a row, completions of one prompt are still one group: they get a number of their own.
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
