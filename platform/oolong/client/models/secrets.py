"""Project secrets: what of them can be seen."""

from __future__ import annotations

from datetime import datetime

from oolong.client.models.answer import Answer


class Secret(Answer):
    name: str
    hosts: list[str]
    jobs: list[str] = []
    fingerprint: str
    created_at: datetime
    updated_at: datetime
    last_used_at: datetime | None = None
