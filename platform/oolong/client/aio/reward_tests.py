"""Tests of rewards, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from oolong.client import endpoints, models
from oolong.client.aio.connection import AsyncConnection


class AsyncRewardTests:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(
        self, *, reward: str | None = None, verdict: str | None = None
    ) -> AsyncIterator[models.RewardTest]:
        return self._connection.pages(endpoints.reward_tests.page(reward=reward, verdict=verdict))

    async def get(self, test_id: str) -> models.RewardTest:
        return await self._connection.send(endpoints.reward_tests.get(test_id))

    async def create(
        self,
        *,
        dataset: str,
        reward: Mapping[str, Any],
        model: str | None = None,
        checkpoint: str | None = None,
        split: str = "train",
        reward_test: Mapping[str, Any] | None = None,
        stored: Sequence[Mapping[str, Any]] = (),
    ) -> models.RewardTest:
        """Queue the test of a reward; `client.runs.wait(test.run)` waits for it. `reward_test` as in the RunSpec;
        samples come from a base model or a checkpoint."""
        request = endpoints.reward_tests.create(
            dataset=dataset, split=split, reward=reward, model=model, checkpoint=checkpoint,
            reward_test=reward_test or {},
            stored=stored,
        )  # fmt: skip
        return await self._connection.send(request)
