"""Tests of rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call, given
from oolong.client.models import Page, RewardTest


def page(*, reward: str | None = None, verdict: str | None = None) -> Call[Page[RewardTest]]:
    return call.page("reward-tests", RewardTest, reward=reward, verdict=verdict)


def get(test_id: str) -> Call[RewardTest]:
    return call.get("reward-tests/{}", RewardTest, test_id)


def create(
    *,
    dataset: str,
    split: str,
    reward: Mapping[str, Any],
    model: str | None,
    checkpoint: str | None,
    reward_test: Mapping[str, Any],
    stored: Sequence[Mapping[str, Any]],
) -> Call[RewardTest]:
    body = {
        "dataset": dataset, "split": split, "reward": dict(reward), "reward_test": dict(reward_test),
        "stored": [dict(sample) for sample in stored], **given({"model": model, "checkpoint": checkpoint}),
    }  # fmt: skip
    return call.post("reward-tests", RewardTest, body=body)
