"""Every write to the catalog."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from django.db import IntegrityError, transaction

from control_plane.accounts.caller import Caller
from control_plane.accounts.secret_services import reveal_for_host
from control_plane.catalog import archives, store
from control_plane.catalog.fair_shares import fetching
from control_plane.catalog.models import (
    Checkpoint,
    CheckpointState,
    CheckpointUpload,
    Dataset,
    Upload,
)
from control_plane.common.errors import FieldError, Problem, conflict, unprocessable
from control_plane.common.outbound import AddressRefused, FetchFailed, fetch

MAX_UPLOAD_BYTES = {"dataset": 8 * 1024**3, "model": archives.MAX_TOTAL_BYTES}
PREVIEW_ROWS = 200
MAX_FETCHED_BYTES = 1024**3  # what is larger is downloaded by its owner and uploaded in parts
FETCH_SECONDS = 50.0


class _Rejected(Exception):
    """Leaves a blob's block so that nothing of it is kept."""


def limit_of(purpose: str) -> int:
    """Bytes that an upload of this purpose has at most. 422 for a purpose that there is not."""
    if purpose not in MAX_UPLOAD_BYTES:
        message = f"purpose={purpose!r}: dataset or model"
        raise unprocessable("invalid", message, [FieldError("/purpose", "unknown", message)])
    return MAX_UPLOAD_BYTES[purpose]


def take_upload(
    caller: Caller, stream: BinaryIO, *, filename: str, purpose: str, sha256: str | None = None
) -> Upload:
    """Stream a file into the store. 413 over the limit, 422 when the caller's SHA-256 does not match."""
    limit = limit_of(purpose)
    try:
        with store.new_blob(limit=limit) as writer:
            for chunk in store.read_chunks(stream):
                writer.write(chunk)
            _refuse_empty(
                writer,
                f"{filename!r} has no bytes; the body of the request is the file, and a file has at least one row",
            )
            if sha256 is not None and writer.blob.sha256 != sha256.lower():
                raise _Rejected
    except store.TooLarge as error:
        raise Problem(
            413, "too_large", f"{filename!r}: an upload of purpose {purpose} has at most {error.limit} bytes"
        ) from error
    except _Rejected as error:
        raise unprocessable(
            "checksum",
            f"X-Content-SHA256 is {sha256}, the {writer.bytes} bytes received have {writer.blob.sha256}",
        ) from error
    return _keep_upload(caller, writer.blob, filename=filename, purpose=purpose)


def _refuse_empty(writer: store.BlobWriter, message: str, *errors: FieldError) -> None:
    if not writer.bytes:
        raise unprocessable("empty", message, list(errors))


def _keep_upload(caller: Caller, blob: store.Blob, *, filename: str, purpose: str) -> Upload:
    with transaction.atomic():
        store.hold(blob.sha256)
        return Upload.objects.create(
            project=caller.project, created_by=caller.user, filename=Path(filename).name[:255] or "upload",
            purpose=purpose, bytes=blob.bytes, sha256=blob.sha256,
        )  # fmt: skip


def fetch_upload(caller: Caller, url: str, *, secret: str = "", now: datetime) -> Upload:
    """Fetch a public https address into an upload of purpose dataset.

    422 for one that may not be asked or fails, 429 while the project has as many under way as it may.

    `secret` names the project's secret that goes along as Authorization.
    """
    authorization = _authorization(caller, secret, url, now=now) if secret else ""
    try:
        with (
            fetching(caller.project, seconds=FETCH_SECONDS),
            fetch(
                url, most_bytes=MAX_FETCHED_BYTES, seconds=FETCH_SECONDS, authorization=authorization
            ) as chunks,
            store.new_blob() as writer,
        ):
            for chunk in chunks:
                writer.write(chunk)
            _refuse_empty(writer, f"{url} has no bytes", FieldError("/url", "empty", "there are no bytes"))
    except AddressRefused as error:
        raise unprocessable(
            "address_blocked", str(error), [FieldError("/url", "address_blocked", str(error))]
        ) from error
    except FetchFailed as error:
        raise unprocessable(
            "fetch_failed", str(error), [FieldError("/url", "fetch_failed", str(error))]
        ) from error
    return _keep_upload(caller, writer.blob, filename=urlsplit(url).path, purpose="dataset")


def _authorization(caller: Caller, secret: str, url: str, *, now: datetime) -> str:
    """The header's value: what is kept if it says its scheme (`Basic …`), else `Bearer` and it."""
    value = reveal_for_host(caller.project.pk, secret, url=url, now=now)
    if not (value.isascii() and value.isprintable()):
        message = f"the secret {secret} cannot be a header: it has a line end or a character outside of ASCII"
        raise unprocessable("secret_invalid", message, [FieldError("/secret", "secret_invalid", message)])
    return value if " " in value else f"Bearer {value}"


# --- datasets ---------------------------------------------------------------------------------------------


def create_dataset(caller: Caller, *, name: str, description: str = "") -> Dataset:
    try:
        with transaction.atomic():
            return Dataset.objects.create(
                project=caller.project, created_by=caller.user, name=name, description=description
            )
    except IntegrityError as error:
        existing = Dataset.objects.get(project=caller.project, name=name)
        raise conflict(
            "name_taken",
            f"there is a dataset {name!r} already ({existing.pk}); add a version to it",
            id=existing.pk,
        ) from error


# --- checkpoints ------------------------------------------------------------------------------------------


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
    store.hold(blob.sha256)
    checkpoint.state, checkpoint.tar_sha256, checkpoint.bytes = (
        CheckpointState.STORED,
        blob.sha256,
        blob.bytes,
    )
    checkpoint.stored_at = now
    checkpoint.save(update_fields=["state", "tar_sha256", "bytes", "stored_at"])
    transaction.on_commit(lambda: store.drop_parts(upload.pk))
    return checkpoint
