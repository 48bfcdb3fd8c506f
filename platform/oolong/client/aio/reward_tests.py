"""Tests of rewards, as the client offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.request_spec import drop_none, get, page, post


class AsyncRewardTests(AsyncResource):
    def list(
        self, *, reward: str | None = None, result: str | None = None
    ) -> AsyncIterator[models.RewardTest]:
        return self._pages(page("reward-tests", models.RewardTest, reward=reward, result=result))

    async def get(self, test_id: str) -> models.RewardTest:
        return await self._send(get("reward-tests/{}", models.RewardTest, test_id))

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
        body = {
            "dataset": dataset, "split": split, "reward": dict(reward), "reward_test": dict(reward_test or {}),
            "stored": [dict(sample) for sample in stored], **drop_none({"model": model, "checkpoint": checkpoint}),
        }  # fmt: skip
        return await self._send(post("reward-tests", models.RewardTest, body=body))
