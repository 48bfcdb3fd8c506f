"""What a run measured and wrote, and frames of the live stream."""

from __future__ import annotations

from typing import Any

from oolong.client.models.answer import Answer


class Series(Answer):
    name: str
    unit: str
    axis: str
    source: str
    attempt: int
    x: list[float]
    value: list[float | None]  # of a bucket its mean; None: not finite
    at: list[float] = []  # unix seconds
    # Of buckets only.
    min: list[float | None] | None = None
    max: list[float | None] | None = None
    last: list[float | None] | None = None
    count: list[int] | None = None
    nonfinite: list[int] | None = None
    against: list[float | None] | None = None  # the place on the other axis that was asked for


class Metrics(Answer):
    series: list[Series]
    seq: int


class LogFile(Answer):
    job: str
    name: str
    incarnation: int
    bytes: int


class LogPart(Answer):
    job: str
    incarnation: int
    offset: int
    next_offset: int
    text: str
    end: bool


class MetricName(Answer):
    name: str
    unit: str
    help: str = ""
    axis: str
    sources: list[str]
    last_x: int | None = None
    conflicts: int = 0


class Document(Answer):
    name: str
    at: float  # unix seconds
    value: dict[str, Any]


class Frame(Answer):
    """One frame of the live stream."""

    topic: str
    seq: int
    type: str
    ts: Any = None
    data: Any = None


class Trajectory(Answer):
    """A stored sample of what a run was trained on; the completion has its special tokens."""

    id: int
    step: int
    group_id: str
    prompt: str
    answer: str
    completion: str
    reward: float
    finish_reason: str
    verdict: str = ""
