"""The pool: nodes, slots, queue."""

from __future__ import annotations

from datetime import datetime

from oolong.client.models.answer import Answer, Named


class SlotHolder(Answer):
    run_id: str
    run_name: str
    job: str | None = None


class Slot(Answer):
    id: str
    name: str  # cpu-0, or the GPU's UUID
    node: Named
    device: str
    model: str = ""
    state: str  # free | held | unhealthy
    held_by: SlotHolder | None = None


class Node(Answer):
    id: str
    name: str
    pool: str
    status: str
    last_seen_at: datetime | None = None


class QueuedRun(Answer):
    run_id: str
    name: str
    priority: int
    slots_needed: int
    why: str
    position: int | None = None
    submitted_at: datetime


class Quota(Answer):
    team: Named
    limit_slots: int | None
    used_slots: int


class PoolSettings(Answer):
    name: str
    all_teams: bool  # every team may use it; otherwise only those bound to it
    trainer_code: bool  # runs may bring losses of their own
    may_manage: bool  # by the caller


class PoolAdmin(Answer):
    id: str  # of the user
    username: str
    appointed_at: datetime


class Pool(PoolSettings):
    blocked_reason: str  # why the caller does not manage it; empty when they do
    pools: list[str]  # names of those that the caller sees
    slots: list[Slot]
    nodes: list[Node]
    queue: list[QueuedRun]
    quota: Quota


class JoinToken(Answer):
    pool: str
    token: str
    expires_at: datetime


class Phases(Answer):
    """Seconds of slots; they add up to `slot_seconds`."""

    generate: float
    train: float
    wait: float
    sync: float
    evaluate: float = 0.0  # by engines beside those of a run; a server of before does not tell
    other: float  # start, checkpoints, end, and what does not measure


class TokenUsage(Answer):
    """Of the runs as a whole, whatever the window."""

    generated: int | None
    trained: int | None
    wasted: int | None  # dropped, or lost to recoveries


class UsageTotal(Answer):
    runs: int
    slot_seconds: float
    gpu_seconds: float
    phases: Phases
    tokens: TokenUsage


class UsageRow(UsageTotal):
    team: Named | None  # None: other teams
    project: Named | None
    run: Named | None


class Usage(Answer):
    since: datetime
    until: datetime
    by: str
    data: list[UsageRow]
    left_out: int  # rows beyond these; the total has them
    total: UsageTotal
