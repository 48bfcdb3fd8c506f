"""Datasets, their versions, and the validations before them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from oolong.client.models.answer import Answer, Named
from oolong.contracts.run_spec import SpecError


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
    aliases: dict[str, int] = {}  # name -> number of its version


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


class Conflict(Answer):
    """Two rows with the same prompt and other answers: where each is."""

    row: str  # "line 7"
    earlier: str


class DatasetValidation(Answer):
    id: str
    state: str  # QUEUED, RUNNING, VALID, INVALID, FAILED
    message: str = ""
    format: str
    delimiter: str = ""
    bytes: int = 0  # of the upload
    bytes_seen: int = 0
    rows_seen: int = 0
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
    conflicts: int = 0
    first_conflicts: list[Conflict] = []
    leaks: dict[str, int] = {}
    prompt_characters: dict[str, float] = {}

    @property
    def ended(self) -> bool:
        return self.state in ("VALID", "INVALID", "FAILED")

    @property
    def valid(self) -> bool:
        return self.state == "VALID"


class DatasetAlias(Answer):
    dataset: Named
    name: str
    version_id: str
    number: int
    ref: str  # name@3
    updated_by: str
    updated_at: datetime


class LengthBin(Answer):
    above: int  # tokens, exclusive
    up_to: int  # tokens, inclusive
    rows: int


class TokenLengths(Answer):
    rows: int
    mean: float
    smallest: int
    p50: int
    p95: int
    p99: int
    largest: int
    share_over: float | None = None
    histogram: list[LengthBin] = []


class DatasetStatistics(Answer):
    """Token lengths of a version under the tokenizer of a base model, by split."""

    id: str
    state: str  # QUEUED, RUNNING, DONE, FAILED
    message: str = ""
    version_id: str
    model: Named
    bytes: int = 0  # of the version's rows
    bytes_seen: int = 0
    vocabulary: int = 0
    duplicates: int = 0
    conflicts: int = 0
    without_completion: int = 0
    prompts: dict[str, TokenLengths] = {}
    completions: dict[str, TokenLengths] = {}

    @property
    def ended(self) -> bool:
        return self.state in ("DONE", "FAILED")
