"""Checkpoints, their aliases, lineage and retention."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from oolong.client.models.answer import Answer, Named


class Checkpoint(Answer):
    id: str
    run: Named
    step: int
    kind: str = "training"  # training: its run goes on from it; weights: runs only begin with it
    sha256: str  # of the manifest
    tar_sha256: str = ""  # of the download; empty while LOCAL
    bytes: int
    state: str  # LOCAL | STORED | DELETED
    final: bool
    metrics: dict[str, float | None] = {}
    parent: str | None = None
    aliases: list[str] = []
    pinned: bool = False
    created_at: datetime


class StoredFile(Answer):
    name: str
    bytes: int
    offset: int  # of its first byte in the download
    sha256: str


class CheckpointFiles(Answer):
    id: str
    tar_sha256: str
    bytes: int
    files: list[StoredFile]


class CheckpointAlias(Answer):
    name: str
    checkpoint: Checkpoint
    protected: bool
    evidence: dict[str, Any] | None = None  # how it passed the alias's gate; None without a gate
    updated_by: str
    updated_at: datetime


class CheckpointGate(Answer):
    alias: str
    spec: dict[str, Any]  # of the eval run, its names pinned; without a model
    assertions: list[str]
    updated_by: str
    updated_at: datetime


class GateCheck(Answer):
    assertion: str
    value: float | None
    holds: bool


class GateVerdict(Answer):
    alias: str
    checkpoint: str
    verdict: str  # passed | failed | missing | pending
    run: str | None  # the newest eval run of this checkpoint by the gate's spec
    checks: list[GateCheck]
    why: str
    command: str  # what to run next


class DownloadLink(Answer):
    url: str
    files_url: str = ""  # its files with offsets and sha256
    expires_at: datetime
    sha256: str
    bytes: int


class LineageNode(Answer):
    id: str
    kind: str
    name: str


class LineageEdge(Answer):
    source: str = Field(alias="from")  # what was used
    to: str  # what came of it
    kind: str


class Lineage(Answer):
    nodes: list[LineageNode]
    edges: list[LineageEdge]
    truncated: bool = False


class RetentionVerdict(Answer):
    id: str
    bytes: int
    keep_reasons: list[str]


class RetentionPlan(Answer):
    free: list[RetentionVerdict]
    keep: list[RetentionVerdict]
    free_bytes: int


class RetentionPolicy(Answer):
    keep_last: int | None = None
    best_metric: str = ""
    best_mode: str = "max"
    best_count: int = 1
    every_steps: int | None = None
    ttl_days: int | None = None
    kinds: list[str] = []  # only checkpoints of these kinds are freed; none: of every kind
    automatic: bool = False
