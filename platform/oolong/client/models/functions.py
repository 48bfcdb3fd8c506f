"""Versioned source of users."""

from __future__ import annotations

from datetime import datetime

from oolong.client.models.answer import Answer, Named


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
