"""How checkpoints and their aliases look in the API."""

from __future__ import annotations

from typing import Any

from control_plane.checkpoints.models import Checkpoint, CheckpointAlias
from control_plane.core.infra.clock import rfc3339


def checkpoint_as_json(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "id": checkpoint.pk,
        "run": {"id": checkpoint.run_id, "name": checkpoint.run_name},
        "attempt_number": checkpoint.attempt_number,
        "step": checkpoint.step,
        "kind": str(checkpoint.kind),
        "sha256": checkpoint.manifest_sha256,
        "tar_sha256": checkpoint.tar_sha256,
        "bytes": checkpoint.bytes,
        "state": checkpoint.state,
        "final": checkpoint.final,
        "metrics": checkpoint.metrics,
        "parent": checkpoint.parent_id,
        "aliases": sorted(alias.name for alias in checkpoint.aliases.all()),
        "pinned": checkpoint.pinned,
        "created_at": rfc3339(checkpoint.created_at),
        "stored_at": rfc3339(checkpoint.stored_at),
        "deleted_at": rfc3339(checkpoint.deleted_at),
    }


def alias_as_json(alias: CheckpointAlias) -> dict[str, Any]:
    return {
        "name": alias.name,
        "checkpoint": checkpoint_as_json(alias.checkpoint),
        "protected": alias.protected,
        "evidence": alias.evidence,
        "updated_by": alias.updated_by.username,
        "updated_at": rfc3339(alias.updated_at),
    }
