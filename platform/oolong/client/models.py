"""What the API answers, typed. Fields that a newer server adds are kept and ignored; statuses stay plain text."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from oolong.contracts.run_spec import SpecError


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())


class Named(Answer):
    id: str
    name: str


class User(Answer):
    id: str
    username: str


class Me(Answer):
    user: User
    team: Named
    project: Named
    scopes: list[str]


class Health(Answer):
    db: str
    broker: str


class Token(Answer):
    id: str
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None


class CreatedToken(Token):
    token: str  # shown once


class Upload(Answer):
    id: str
    filename: str
    bytes: int
    sha256: str


class UploadSession(Answer):
    id: str
    bytes: int
    part_bytes: int
    part_count: int
    received_parts: list[int]
    upload: Upload | None = None


class DatasetVersion(Answer):
    id: str
    dataset: Named
    number: int
    ref: str  # name@3
    sha256: str
    rows: int
    splits: dict[str, int]
    mapping: dict[str, Any]
    bytes: int
    created_at: datetime


class DatasetDifference(Answer):
    identical: bool
    added: int
    removed: int
    changed: int
    unchanged: int
    splits: dict[str, dict[str, int]]


class Dataset(Answer):
    id: str
    name: str
    description: str = ""
    created_at: datetime
    latest: DatasetVersion | None = None


class DatasetRow(Answer):
    row: int
    split: str
    messages: list[dict[str, str]]
    answer: str
    completion: str | None = None


class Column(Answer):
    name: str
    type: str
    missing: int


class RenderedRow(Answer):
    messages: list[dict[str, str]]
    answer: str = ""
    completion: str | None = None
    split: str = ""


class DatasetPreview(Answer):
    columns: list[Column]
    rows: list[Any]
    rendered: list[RenderedRow]
    errors: list[SpecError]


class DatasetValidation(Answer):
    id: str
    state: str  # QUEUED, RUNNING, VALID, INVALID, FAILED
    message: str = ""
    format: str
    rows: int = 0
    faults: int = 0
    faults_by_code: dict[str, int] = {}
    faults_cut: bool = False
    errors: list[SpecError] = []
    columns: list[Column] = []
    sample: list[Any] = []
    rendered: list[RenderedRow] = []
    splits: dict[str, int] = {}
    duplicates: int = 0
    leaks: dict[str, int] = {}
    prompt_characters: dict[str, float] = {}

    @property
    def ended(self) -> bool:
        return self.state in ("VALID", "INVALID", "FAILED")

    @property
    def valid(self) -> bool:
        return self.state == "VALID"


class Model(Answer):
    id: str
    name: str
    family: str
    parameters: int | None
    sha256: str
    bytes: int
    config: dict[str, Any]
    source: str
    created_at: datetime


class FunctionVersion(Answer):
    id: str
    function: Named
    kind: str  # reward, workflow, loss
    number: int
    ref: str  # name@3
    sha256: str
    bytes: int
    options: list[str]
    any_option: bool
    created_by: str
    created_at: datetime


class Function(Answer):
    id: str
    name: str
    kind: str
    description: str = ""
    created_at: datetime
    versions: list[FunctionVersion]  # newest first


class Project(Answer):
    id: str
    name: str
    team: Named
    trainer_code: bool


class ProjectEvent(Answer):
    id: str
    at: datetime
    actor: str
    kind: str
    message: str
    data: dict[str, Any] = {}


class Progress(Answer):
    phase: str
    done: int
    total: int
    message: str = ""


class LatestCheckpoint(Answer):
    id: str
    step: int


class Reference(Answer):
    id: str
    name: str = ""
    ref: str = ""


class Parent(Answer):
    id: str
    name: str
    relation: str  # clone, fork, retry


class Run(Answer):
    id: str
    name: str
    kind: str
    status: str  # see contracts.lifecycle.RunStatus
    reason: str = ""
    reason_message: str = ""
    advice: str = ""
    fault: str = "none"
    conditions: list[str] = []
    waiting_why: str = ""
    queue_position: int | None = None
    attempt_number: int = 0
    train_step: int = 0
    total_train_steps: int = 0
    policy_version: int = 0
    progress: Progress | None = None
    reward_mean: float | None = None
    staleness_mean: float | None = None
    spec: dict[str, Any]
    dataset: Reference
    model: Reference
    created_by: str = ""
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    notes: str = ""
    tags: list[str] = []
    parent: Parent | None = None
    latest_checkpoint: LatestCheckpoint | None = None
    summary: dict[str, Any] = {}
    metrics_seq: int = 0

    @property
    def ended(self) -> bool:
        return self.status in ("SUCCEEDED", "STOPPED", "FAILED")

    @property
    def rests(self) -> bool:
        """PAUSED for a reason of its own: it waits for somebody to look, so nobody should wait for it."""
        return self.status == "PAUSED" and self.fault not in ("", "none")


class Alert(Answer):
    id: str
    rule: str
    severity: str  # info, warning, critical
    title: str
    message: str
    advice: str = ""
    train_step: int = 0
    opened_at: datetime
    closed_at: datetime | None = None  # None while it holds


class Validation(Answer):
    valid: bool
    errors: list[SpecError]
    resolved: dict[str, Any] | None = None


class Preset(Answer):
    name: str
    title: str
    description: str
    paper: str = ""  # link to where its numbers come from
    spec: dict[str, Any]


class RunEvent(Answer):
    id: str
    kind: str
    message: str
    at: datetime


class Attempt(Answer):
    id: str
    number: int
    status: str
    node: Named | None = None
    reason: str = ""
    message: str = ""


class Job(Answer):
    id: str
    name: str
    kind: str
    attempt_number: int
    state: str
    node: Named | None = None
    slots: list[str]
    incarnation: int = 0
    pid: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""


class Series(Answer):
    name: str
    unit: str
    axis: str
    source: str
    attempt: int
    x: list[float]
    value: list[float]
    at: list[float] = []  # unix seconds


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


class Checkpoint(Answer):
    id: str
    run: Reference
    step: int
    sha256: str  # of the manifest
    tar_sha256: str = ""  # of the download; empty while LOCAL
    bytes: int
    state: str  # LOCAL | STORED | FREED
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
    updated_by: str
    updated_at: datetime


class DownloadLink(Answer):
    url: str
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
    kept_because: list[str]


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
    automatic: bool = False


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


class Pool(Answer):
    slots: list[Slot]
    nodes: list[Node]
    queue: list[QueuedRun]
    quota: Quota


class EnrolmentToken(Answer):
    token: str
    expires_at: datetime


class Frame(Answer):
    """One frame of the live stream."""

    topic: str
    seq: int
    type: str
    ts: Any = None
    data: Any = None


T = TypeVar("T")


class Page(Answer, Generic[T]):
    data: list[T]
    next_cursor: str | None = None
    has_more: bool = False


class Session(Answer):
    """An open agent session: one member of a group. `base_url` and `api_key` are for an OpenAI client."""

    id: str
    run_id: str
    base_url: str
    api_key: str
    model: str
    group_id: str
    member: int
    row: int  # of the dataset version
    messages: list[dict[str, str]]  # the row's, as the dataset has them
    prompt: str  # the same, rendered
    answer: str
    temperature: float  # the run's; no other is served
    max_tokens: int  # of one completion
    timeout_seconds: float  # a session left alone for so long is dropped


class SessionBranch(Answer):
    turn: int
    because: str  # started, forked, history_rewritten


class SessionState(Answer):
    id: str
    state: str  # open, ended, dropped
    why: str
    reward: float | None
    completions: int
    sampled_tokens: int
    branches: list[SessionBranch]
