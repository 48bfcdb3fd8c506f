"""Every write to the catalog."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from django.db import IntegrityError, transaction

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.secrets.secret_services import reveal_for_host
from control_plane.assets.background.fair_queue import fetching
from control_plane.assets.base_models import archives
from control_plane.assets.models import Dataset, Upload
from control_plane.assets.storage import store
from control_plane.core.api.errors import FieldError, Problem, conflict, unprocessable
from oolong.system.safe_http import AddressBlocked, FetchFailed, download

MAX_UPLOAD_BYTES = {"dataset": 8 * 1024**3, "model": archives.MAX_TOTAL_BYTES}
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
        store.lock_blob(blob.sha256)
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
            download(
                url, most_bytes=MAX_FETCHED_BYTES, seconds=FETCH_SECONDS, authorization=authorization
            ) as chunks,
            store.new_blob() as writer,
        ):
            for chunk in chunks:
                writer.write(chunk)
            _refuse_empty(writer, f"{url} has no bytes", FieldError("/url", "empty", "there are no bytes"))
    except AddressBlocked as error:
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
