"""Runs, their attempts, jobs and events."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from oolong.client.models.answer import Answer, Named
from oolong.contracts.run_spec import LintFinding, SpecError


class Progress(Answer):
    phase: str
    done: int
    total: int
    message: str = ""


class LatestCheckpoint(Answer):
    id: str
    step: int


class DatasetReference(Answer):
    id: str
    ref: str = ""  # name@3


class ModelReference(Answer):
    id: str
    name: str = ""
    kind: str = ""  # base_model, checkpoint


class Parent(Answer):
    id: str
    name: str
    relation: str  # clone, fork, retry


class BootStage(Answer):
    name: str
    title: str
    state: str  # waiting, active, done, failed, stopped
    started_at: datetime | None = None
    ended_at: datetime | None = None
    detail: str = ""


class Boot(Answer):
    """How the newest attempt comes up: the stages in their order."""

    attempt_number: int = 0
    done: bool = False
    stages: list[BootStage] = []


class Staleness(Answer):
    max: int
    on_straggler: str
    mean: float | None = None
    realized_max: int | None = None
    exceeded_groups: int | None = None
    trained_groups: int = 0
    message: str = ""  # what was exceeded and what to do about it


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
    pending_reason: str = ""
    queue_position: int | None = None
    attempt_number: int = 0
    train_step: int = 0
    total_train_steps: int = 0
    policy_version: int = 0
    progress: Progress | None = None
    reward_mean: float | None = None
    staleness_mean: float | None = None
    spec: dict[str, Any]
    dataset: DatasetReference
    model: ModelReference
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
    boot: Boot | None = None  # of one run; lists leave it out
    staleness: Staleness | None = None  # likewise

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
    warnings: list[LintFinding] = []
    resolved: dict[str, Any] | None = None


class PlannedJob(Answer):
    name: str
    kind: str
    slots: int


class PlannedPlace(Answer):
    starts_now: bool
    blocked_reason: str = ""
    queue_position: int | None = None


class PlannedTime(Answer):
    seconds: float | None = None  # None: no run of this shape has succeeded yet
    gpu_hours: float | None = None
    from_runs: int = 0


class DryRun(Answer):
    jobs: list[PlannedJob]
    slots_needed: int
    placement: PlannedPlace
    groups: int | None = None
    tokens: dict[str, int | None] = {}
    time: PlannedTime


class Plan(Validation):
    plan: DryRun | None = None  # None when there are errors


class Preset(Answer):
    name: str
    title: str
    description: str
    paper: str = ""  # link to where its numbers come from
    spec: dict[str, Any]
    fault: str = ""  # why its file cannot be used


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
    evaluates: int | None = None  # of an evaluator, an engine beside those of the run: the version
    incarnation: int = 0
    pid: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
