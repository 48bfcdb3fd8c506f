"""The project of the token."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from oolong.client.models.answer import Answer, Named


class Project(Answer):
    id: str
    name: str
    team: Named
    tested_rewards: bool = False


class ProjectEvent(Answer):
    id: str
    at: datetime
    actor: str
    kind: str
    message: str
    data: dict[str, Any] = {}
