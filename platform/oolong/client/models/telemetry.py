"""What a run measured and wrote, and frames of the live stream."""

from __future__ import annotations

from datetime import datetime
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
    x_axis: list[float | None] | None = None  # the place on the other axis that was asked for


class Histogram(Answer):
    x: int
    attempt: int
    source: str
    counts: dict[str, int]  # bucket, a whole number as text


class Trajectory(Answer):
    """A sampled one, with its texts."""

    id: int
    step: int
    group_id: str
    attempt: int
    at: float  # unix seconds
    prompt: str
    answer: str
    completion: str
    reward: float
    score: float | None = None  # before scale and bias
    reward_parts: dict[str, float] = {}
    verdict: str = ""
    policy_versions: list[int]  # pairs: version, count of tokens, ...; -1 is the environment
    finish_reason: str
    sample_reasons: list[str] = []
    row: int | None = None
    member: int | None = None
    tokens: int | None = None
    low_version: int | None = None
    high_version: int | None = None
    timeline: dict[str, float] = {}


class WholeTrajectory(Trajectory):
    """Token by token; None where the job did not tell them."""

    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    versions: list[int] | None = None


class FoundLine(Answer):
    """A line of a log."""

    job: str
    name: str
    attempt: int
    incarnation: int
    offset: int
    at: datetime | None = None
    level: str | None = None
    text: str


class Metrics(Answer):
    series: list[Series]
    seq: int


class LogFile(Answer):
    job: str
    name: str
    incarnation: int
    bytes: int
    dropped_bytes: int = 0  # left out because the job wrote too fast


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


class StateSnapshot(Answer):
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
