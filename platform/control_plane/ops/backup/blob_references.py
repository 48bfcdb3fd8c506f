"""Every blob that the database references."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.apps import apps

from control_plane.assets.storage.blob_columns import COLUMNS


@dataclass(frozen=True)
class Reference:
    sha256: str
    bytes: int | None  # as the row says; None where it does not
    row: str  # "checkpoints.Checkpoint ckpt_…", for messages


def references() -> Iterator[Reference]:
    """Every blob that a row names, once per row, as this connection sees the database now."""
    for column in COLUMNS:
        model = apps.get_model(column.model)
        names = ["pk", column.sha256, *([column.bytes] if column.bytes else [])]
        rows = model._default_manager.filter(column.only).exclude(**{column.sha256: ""})
        for identity, sha256, *size in rows.values_list(*names).iterator(chunk_size=5000):
            yield Reference(sha256, size[0] if size else None, f"{column.model} {identity}")
