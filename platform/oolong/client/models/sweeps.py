"""Sweeps, templates and saved views."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from oolong.client.models.answer import Answer


class TrialRun(Answer):
    id: str
    name: str
    status: str


class Trial(Answer):
    number: int
    values: dict[str, Any]  # JSON pointer -> value
    run: TrialRun | None = None
    state: str  # waiting, running, succeeded, stopped, failed, skipped
    skipped: str = ""
    train_step: int = 0
    objective: float | None = None


class Sweep(Answer):
    id: str
    name: str
    status: str  # RUNNING, PAUSED, FINISHED, CANCELLED, FAILED
    message: str = ""
    spec: dict[str, Any]
    plan: dict[str, Any]
    max_parallel: int
    trials: int
    counts: dict[str, int]  # trials by state
    best: Trial | None = None
    created_by: str = ""
    created_at: datetime
    ended_at: datetime | None = None


class TemplateVersion(Answer):
    number: int
    spec: dict[str, Any]


class RunTemplate(Answer):
    id: str
    name: str
    ref: str  # name@3: its newest version
    description: str = ""
    of_team: bool = False
    spec: dict[str, Any]
    versions: list[TemplateVersion] = []


class RunView(Answer):
    id: str
    name: str
    query: dict[str, list[str]]
    shared: bool = False
    owner: str = ""
