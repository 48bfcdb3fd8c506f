"""Tests of rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec, drop_none
from oolong.client.models import Page, RewardTest


def page(*, reward: str | None = None, verdict: str | None = None) -> RequestSpec[Page[RewardTest]]:
    return request_spec.page("reward-tests", RewardTest, reward=reward, verdict=verdict)


def get(test_id: str) -> RequestSpec[RewardTest]:
    return request_spec.get("reward-tests/{}", RewardTest, test_id)


def create(
    *,
    dataset: str,
    split: str,
    reward: Mapping[str, Any],
    model: str | None,
    checkpoint: str | None,
    reward_test: Mapping[str, Any],
    stored: Sequence[Mapping[str, Any]],
) -> RequestSpec[RewardTest]:
    body = {
        "dataset": dataset, "split": split, "reward": dict(reward), "reward_test": dict(reward_test),
        "stored": [dict(sample) for sample in stored], **drop_none({"model": model, "checkpoint": checkpoint}),
    }  # fmt: skip
    return request_spec.post("reward-tests", RewardTest, body=body)
