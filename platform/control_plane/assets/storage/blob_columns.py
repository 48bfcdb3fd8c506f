"""Which rows name which blobs. A new column with a hash must be put into one of the two tables: a test says so."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from django.apps import apps
from django.db.models import Q

EMPTY_LINE = b"\n"  # the rows of what needs none
# What code names and no row does.
BY_CODE = frozenset({hashlib.sha256(EMPTY_LINE).hexdigest()})


@dataclass(frozen=True)
class Column:
    model: str  # app label and model
    sha256: str  # the column with the hash
    bytes: str = ""  # the column with the size, where there is one
    only: Q = field(default_factory=Q)


COLUMNS = (
    Column("assets.Upload", "sha256", "bytes"),
    Column("assets.DatasetVersion", "sha256", "bytes"),
    Column("assets.DatasetValidation", "canonical_sha256"),
    Column("assets.DatasetValidation", "report_sha256"),
    Column("assets.BaseModel", "sha256", "bytes"),
    Column("assets.ModelCheck", "archive_sha256", only=~Q(state="ENDED")),
    Column("assets.FunctionVersion", "sha256", "bytes"),
    Column("experiments.RewardTest", "samples_sha256", "samples_bytes"),
    Column("checkpoints.Checkpoint", "tar_sha256", "bytes", Q(state="STORED")),
    Column("telemetry.TrajectoryFile", "sha256", "bytes"),
)


def is_named(sha256: str) -> bool:
    """Whether a row of any project has these very bytes, whatever it has them for."""
    return sha256 in BY_CODE or any(
        apps.get_model(column.model)._default_manager.filter(column.only, **{column.sha256: sha256}).exists()
        for column in COLUMNS
    )
