"""Base models."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from oolong.client.models.answer import Answer


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
