"""Tests of rewards."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from oolong.client.models.answer import Answer
from oolong.client.models.runs import DatasetReference


class RewardTest(Answer):
    id: str
    run: str  # of kind reward_test
    status: str  # of that run
    reason: str = ""
    reason_message: str = ""
    pending_reason: str = ""
    reward: str
    reward_key: str
    dataset: DatasetReference
    verdict: str  # green | amber | red; empty before the end
    complete: bool = False  # every probe, on the usual rows and bounds
    report: dict[str, Any] | None = None
    created_by: str
    created_at: datetime
    ended_at: datetime | None = None
