"""The audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from oolong.client.models.answer import Answer


class AuditActor(Answer):
    kind: str
    id: str
    name: str
    token_id: str


class AuditTarget(Answer):
    kind: str
    id: str
    name: str


class AuditEntry(Answer):
    id: str
    at: datetime
    action: str
    actor: AuditActor
    address: str
    request_id: str
    target: AuditTarget
    message: str
    data: dict[str, Any]
    number: int | None = None
    sha256: str
