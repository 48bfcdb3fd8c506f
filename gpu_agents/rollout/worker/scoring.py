"""Scores from the reward service. A failed reward raises and is never a score of 0."""

from __future__ import annotations

from typing import Literal

from oolong.contracts.rollout import ScoreReply, ScoreRequest
from oolong.contracts.run_spec.lint import REWARD_PATIENCE_SECONDS
from oolong.system.rpc import RpcClient, RpcError, RpcUnavailable

Purpose = Literal["training", "evaluation"]

# The service itself times out and retries slow rewards. Before that, a completion may queue behind those of all
# other groups.
EXTRA_SECONDS = REWARD_PATIENCE_SECONDS


class RewardFailed(Exception):
    """The reward function returned no score. Its group fails with reward_error."""


class Scorer:
    def __init__(self, service: RpcClient, *, timeout_seconds: float, purpose: Purpose = "training") -> None:
        self._service = service
        self._timeout_seconds = timeout_seconds
        self._purpose = purpose

    def for_evaluation(self, *, timeout_seconds: float) -> Scorer:
        """A scorer that uses the evaluation's own reward, where the spec names one."""
        return Scorer(self._service, timeout_seconds=timeout_seconds, purpose="evaluation")

    async def score(
        self, *, prompt: str, answer: str, completion: str, finish_reason: str, row: int = -1
    ) -> ScoreReply:
        """A reply with a score, its parts and a result. Raises RewardFailed."""
        request = ScoreRequest(
            prompt=prompt,
            completion=completion,
            answer=answer,
            finish_reason=finish_reason,
            row=row,
            purpose=self._purpose,
        )
        try:
            reply = await self._service.call(
                "score", request, ScoreReply, timeout=self._timeout_seconds + EXTRA_SECONDS
            )
        except (RpcError, RpcUnavailable) as error:
            raise RewardFailed(str(error)) from error
        if reply.status != "ok" or reply.score is None:
            raise RewardFailed(reply.message or "the reward service returned neither a score nor a message")
        return reply
