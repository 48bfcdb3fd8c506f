"""Two scorers behind one door: that of training, and the one that an evaluation names for itself."""

from __future__ import annotations

from gpu_agents.rewards.reward import Completion, Score, Scorer


class ByPurpose:
    """See `reward.Scorer`. Each completion says what it is scored for."""

    def __init__(self, *, training: Scorer, evaluation: Scorer) -> None:
        self._scorers = {"training": training, "evaluation": evaluation}

    async def start(self) -> None:
        for scorer in self._scorers.values():
            await scorer.start()

    async def score(self, completion: Completion) -> Score:
        return await self._scorers[completion.purpose].score(completion)

    async def close(self) -> None:
        for scorer in self._scorers.values():
            await scorer.close()
