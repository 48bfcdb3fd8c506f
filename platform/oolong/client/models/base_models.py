"""Base models."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from oolong.client.models.answer import Answer
from oolong.contracts.run_spec import SpecError


class ModelFile(Answer):
    name: str
    bytes: int
    sha256: str


class Model(Answer):
    id: str
    name: str
    number: int | None = None  # of the version, once READY
    ref: str = ""  # name@2
    state: str = "READY"  # VALIDATING, READY, INVALID, DUPLICATE
    message: str = ""  # why INVALID
    errors: list[SpecError] = []  # every fault, by file or tensor
    same_as: str | None = None  # of a DUPLICATE: the version with the same files
    family: str
    parameters: int | None
    sha256: str
    bytes: int
    config: dict[str, Any]
    source: str  # upload, path or hub
    path: str = ""  # on the nodes
    origin: str = ""  # of a hub: address, model and commit
    manifest_sha256: str = ""  # of the names and hashes of its files
    files: list[ModelFile] = []
    tensors: int | None = None
    dtypes: dict[str, int] = {}  # parameters by dtype
    tokens: int | None = None  # ids of the tokenizer
    prompt: str = ""  # what its chat template makes of a small conversation
    created_at: datetime


class ModelImport(Answer):
    """A model that a node fetches from a hub."""

    id: str
    name: str
    hub: str
    hub_model: str
    revision: str
    commit: str = ""
    state: str  # QUEUED, RUNNING, CHECKING, DONE, FAILED, CANCELLED
    message: str = ""
    bytes_done: int = 0
    bytes_total: int = 0
    model: Model | None = None

    @property
    def ended(self) -> bool:
        return self.state in ("DONE", "FAILED", "CANCELLED")
