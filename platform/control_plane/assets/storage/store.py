"""The blob store: bytes under their SHA-256, in a local directory or in a bucket (STORAGE_URL).

A blob is written to a local file, hashed on the way, and published when it is complete. A transaction that stores a
blob's name in a row calls `lock_blob`; deletions go through `delete_if_unreferenced`, which takes the same lock.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import IO

from django.conf import settings
from django.db import transaction

from control_plane.assets.storage.address import LocalAddress, read_address
from control_plane.assets.storage.blob import CHUNK as CHUNK
from control_plane.assets.storage.blob import Blob as Blob
from control_plane.assets.storage.blob import ListedBlob as ListedBlob
from control_plane.assets.storage.blob import PartsGone as PartsGone
from control_plane.assets.storage.blob import Storage
from control_plane.assets.storage.blob import StorageUnavailable as StorageUnavailable
from control_plane.assets.storage.blob import read_chunks as read_chunks
from control_plane.assets.storage.blob_columns import is_named
from control_plane.assets.storage.local import LocalStorage, drop_old_entries
from control_plane.core.api.errors import Problem, conflict
from control_plane.core.infra.ids import new_id
from control_plane.core.infra.locks import LockClass, transaction_lock


class TooLarge(Exception):
    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} bytes")
        self.limit = limit


class BlobWriter:
    """A file being written, hashed on the way."""

    def __init__(self, file: IO[bytes], limit: int | None) -> None:
        self._file, self._limit = file, limit
        self._hash = hashlib.sha256()
        self.bytes = 0

    def write(self, data: bytes) -> int:
        self.bytes += len(data)
        if self._limit is not None and self.bytes > self._limit:
            raise TooLarge(self._limit)
        self._hash.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self.bytes

    @property
    def blob(self) -> Blob:
        return Blob(self._hash.hexdigest(), self.bytes)


@contextmanager
def new_blob(*, limit: int | None = None) -> Iterator[BlobWriter]:
    """Write a blob; it is kept when the block ends well, and gone without a trace when it does not."""
    temporary = temporary_path()
    try:
        with temporary.open("wb") as file:
            writer = BlobWriter(file, limit)
            yield writer
            file.flush()
            os.fsync(file.fileno())
        storage().publish(temporary, writer.blob)
    finally:
        temporary.unlink(missing_ok=True)


def put(chunks: Iterable[bytes], *, limit: int | None = None) -> Blob:
    with new_blob(limit=limit) as writer:
        for chunk in chunks:
            writer.write(chunk)
    return writer.blob


def move_in(path: Path, blob: Blob) -> None:
    """Make a finished, fsynced file of this machine a blob; its hash is taken at its word."""
    storage().publish(path, blob)


def has_blob(sha256: str) -> bool:
    return storage().has(sha256)


def size_of(sha256: str) -> int:
    return storage().size(sha256)


def open_blob(sha256: str) -> IO[bytes]:
    """Seekable, for reading."""
    return storage().open(sha256)


def presign(sha256: str) -> str:
    """A path, or a signed URL, by which another process on this machine reads the blob."""
    return storage().lend(sha256)


def listed() -> Iterator[ListedBlob]:
    """Every blob that is there, whether a row names it or not."""
    return storage().listed()


def lock_blob(sha256: str) -> None:
    """Nobody frees these bytes until the caller's transaction ends. 409 when they are gone already."""
    transaction_lock(LockClass.BLOB, sha256)
    if not has_blob(sha256):
        raise conflict(
            "bytes_deleted", f"the bytes {sha256[:12]}… were freed at this very moment; send them again"
        )


def owner() -> str:
    """The database that frees what it does not name; "" where nobody said."""
    return storage().owner()


def set_owner(owner: str) -> None:
    storage().set_owner(owner)


def delete_if_unreferenced(sha256: str, *, untouched_since: datetime | None = None) -> bool:
    """Delete a blob that no row names, and nobody wrote again; whoever is about to name it waits, and gets an error."""
    with transaction.atomic():
        transaction_lock(LockClass.BLOB, sha256)
        if is_named(sha256):
            return False
        if untouched_since is not None and not _is_older(sha256, untouched_since):
            return False
        storage().delete(sha256)
    return True


def _is_older(sha256: str, than: datetime) -> bool:
    try:
        return storage().touched_at(sha256) < than
    except FileNotFoundError:
        return False  # somebody else freed it


def delete_on_commit(sha256: str) -> None:
    """Delete the blob if unreferenced once the caller's transaction commits. An unreachable storage is only logged."""

    def delete() -> None:
        delete_if_unreferenced(sha256)

    transaction.on_commit(delete, robust=True)


@contextmanager
def delete_on_rollback(sha256: str) -> Iterator[None]:
    """A blob is there and its row is not: a refusal in the block takes the bytes away again. "" is no blob."""
    try:
        yield
    except StorageUnavailable:
        raise
    except Problem:
        if sha256:
            delete_if_unreferenced(sha256)
        raise


def put_part(upload_id: str, number: int, data: bytes) -> None:
    storage().put_part(upload_id, number, data)


def received_parts(upload_id: str) -> list[int]:
    return storage().received_parts(upload_id)


def join_parts(upload_id: str, count: int) -> Blob:
    """Parts 0 .. count-1 become one blob. Raises PartsGone."""
    return storage().join_parts(upload_id, count)


def drop_parts(upload_id: str) -> None:
    storage().drop_parts(upload_id)


def validation_folder(validation_id: str) -> Path:
    """Where the process of a validation works."""
    return _scratch_root() / "validations" / validation_id


def scratch_folder() -> Path:
    folder = _scratch_root() / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def temporary_path() -> Path:
    return scratch_folder() / new_id("tmp")


def drop_unfinished(*, before: datetime) -> int:
    """Clean up temporary files and unfinished uploads that nobody has touched since `before`."""
    local = [scratch_folder(), _scratch_root() / "validations"]
    return sum(drop_old_entries(folder, before=before) for folder in local) + storage().drop_unfinished(
        before=before
    )


def check() -> None:
    """At start-up. Raises StorageUnavailable or BadAddress, which say what is wrong with STORAGE_URL."""
    storage().check()


def storage() -> Storage:
    return _storage_at(settings.ENVIRONMENT.storage_url, _data_dir())


@lru_cache(maxsize=4)
def _storage_at(url: str, data_dir: Path) -> Storage:
    address = read_address(url, data_dir=data_dir)
    if isinstance(address, LocalAddress):
        return LocalStorage(address.root)
    from control_plane.assets.storage.s3 import S3Storage  # boto3 only where it is used

    return S3Storage(address)


def _scratch_root() -> Path:
    """On the file system of a local store, so that publishing is a rename."""
    address = read_address(settings.ENVIRONMENT.storage_url, data_dir=_data_dir())
    return address.root if isinstance(address, LocalAddress) else _data_dir()


def _data_dir() -> Path:
    root: Path = settings.ENVIRONMENT.data_dir
    return root
