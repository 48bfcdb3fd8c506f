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
    source: str  # upload, path or hub
    path: str = ""  # on the nodes
    origin: str = ""  # of a hub: address, model and commit
    created_at: datetime


class ModelImport(Answer):
    """A model that a node fetches from a hub."""

    id: str
    name: str
    hub: str
    hub_model: str
    revision: str
    commit: str = ""
    state: str  # QUEUED, RUNNING, DONE, FAILED, CANCELLED
    message: str = ""
    bytes_done: int = 0
    bytes_total: int = 0
    model: Model | None = None

    @property
    def ended(self) -> bool:
        return self.state in ("DONE", "FAILED", "CANCELLED")
