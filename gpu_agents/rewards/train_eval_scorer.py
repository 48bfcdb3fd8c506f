"""Dispatches completions to the training scorer or to the evaluation scorer."""

from __future__ import annotations

from gpu_agents.rewards.reward import Completion, Score, Scorer


class TrainEvalScorer:
    """A `reward.Scorer` that selects the scorer by the completion's purpose."""

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
