"""POST /score: one completion in, one score or one reason out. An error is never a score of 0."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from dataclasses import dataclass, field

from gpu_agents.channel import Door
from gpu_agents.rewards.pool import ChildPool, TimedOut
from gpu_agents.rewards.reward import Completion, Reward
from oolong.contracts.rollout import ScoreReply, ScoreRequest

log = logging.getLogger(__name__)

LOGGED_ERRORS = 20


@dataclass(kw_only=True)
class ScoreCounts:
    """How many completions were scored, and how the others failed."""

    scored: int = 0
    failed: Counter[str] = field(default_factory=Counter)  # error, timeout, not_finite
    seconds: float = 0.0


class RewardService:
    """Serves one reward function: in this process, or in killable children when it may hang."""

    def __init__(self, reward: Reward | ChildPool, *, token: str) -> None:
        self._reward = reward
        self.counts = ScoreCounts()
        self.door = Door(token)
        self.door.verb("score", ScoreRequest, self._score)

    async def _score(self, request: ScoreRequest) -> ScoreReply:
        started = time.monotonic()
        completion = Completion(
            prompt=request.prompt,
            text=request.completion,
            answer=request.answer,
            finish_reason=request.finish_reason,
            row=request.row,
        )
        try:
            if isinstance(self._reward, ChildPool):
                score = await self._reward.score(completion)
            else:
                score = float(self._reward(completion))
        except TimedOut as error:
            return self._error("timeout", str(error), started)
        except Exception as error:  # noqa: BLE001 - whatever a reward raises is the reason of this completion's error
            return self._error("error", f"{type(error).__name__}: {error}", started)
        if not math.isfinite(score):
            return self._error("not_finite", f"the score is {score}", started)
        seconds = time.monotonic() - started
        self.counts.scored += 1
        self.counts.seconds += seconds
        return ScoreReply(status="ok", score=score, seconds=seconds)

    def _error(self, kind: str, message: str, started: float) -> ScoreReply:
        self.counts.failed[kind] += 1
        if self.counts.failed.total() <= LOGGED_ERRORS:
            log.warning("no score (%s): %s", kind, message)
        return ScoreReply(status="error", message=message, seconds=time.monotonic() - started)
