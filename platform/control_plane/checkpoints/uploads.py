"""Writes of checkpoint uploads: started by a node, completed when all parts have arrived."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from control_plane.assets.storage import store
from control_plane.checkpoints.models import Checkpoint, CheckpointState, CheckpointUpload


def begin_checkpoint_upload(
    checkpoint: Checkpoint, *, node_id: str, tar_sha256: str, bytes: int, epoch: int
) -> CheckpointUpload:
    """The upload for this tar: a new one, or the one that was interrupted."""
    upload, _ = CheckpointUpload.objects.get_or_create(
        checkpoint=checkpoint, tar_sha256=tar_sha256,
        defaults={"node_id": node_id, "bytes": bytes, "epoch": epoch},
    )  # fmt: skip
    return upload


def complete_checkpoint_upload(upload: CheckpointUpload, blob: store.Blob, *, now: datetime) -> Checkpoint:
    """Mark the checkpoint STORED as what its joined parts made. Repeating it changes nothing."""
    checkpoint = upload.checkpoint
    if checkpoint.state == CheckpointState.STORED:
        return checkpoint
    store.lock_blob(blob.sha256)
    checkpoint.state, checkpoint.tar_sha256, checkpoint.bytes = (
        CheckpointState.STORED,
        blob.sha256,
        blob.bytes,
    )
    checkpoint.stored_at = now
    checkpoint.save(update_fields=["state", "tar_sha256", "bytes", "stored_at"])
    transaction.on_commit(lambda: store.drop_parts(upload.pk))
    return checkpoint
