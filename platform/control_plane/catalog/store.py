"""The blob store: a local directory of files named by their SHA-256.

A blob appears whole or not at all: written to a temporary name, fsynced, renamed, and its folder fsynced.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

from django.conf import settings

from control_plane.common.ids import new_id

CHUNK = 1024 * 1024
_Bytes = bytes  # `Blob.bytes` hides the type inside its class


@dataclass(frozen=True)
class Blob:
    sha256: str
    bytes: int

    @classmethod
    def of(cls, data: _Bytes) -> Blob:
        return cls(hashlib.sha256(data).hexdigest(), len(data))


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
        target = blob_path(writer.blob.sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.rename(target)
        _sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def put(chunks: Iterable[bytes], *, limit: int | None = None) -> Blob:
    with new_blob(limit=limit) as writer:
        for chunk in chunks:
            writer.write(chunk)
    return writer.blob


def read_chunks(stream: BinaryIO | IO[bytes]) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK):
        yield chunk


def blob_path(sha256: str) -> Path:
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise ValueError(f"{sha256!r} is not a SHA-256 in lower-case hexadecimal")
    return _root() / "blobs" / sha256[:2] / sha256


def has_blob(sha256: str) -> bool:
    return blob_path(sha256).is_file()


def open_blob(sha256: str) -> IO[bytes]:
    return blob_path(sha256).open("rb")


def adopt(path: Path, sha256: str) -> None:
    """Make a finished, fsynced file of this file system a blob; its hash is taken at its word."""
    target = blob_path(sha256)
    target.parent.mkdir(parents=True, exist_ok=True)
    path.rename(target)
    _sync_folder(target.parent)


def validation_folder(validation_id: str) -> Path:
    """Where the process of a validation works."""
    return _root() / "validations" / validation_id


def delete(sha256: str) -> None:
    """Drop a blob that no row names any more. One that is gone already is no fault."""
    blob_path(sha256).unlink(missing_ok=True)


def scratch_folder() -> Path:
    folder = _root() / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def temporary_path() -> Path:
    return scratch_folder() / new_id("tmp")


# --- uploads in parts -------------------------------------------------------------------------------------


def parts_folder(upload_id: str) -> Path:
    return _root() / "parts" / upload_id


def received_parts(upload_id: str) -> list[int]:
    folder = parts_folder(upload_id)
    if not folder.is_dir():
        return []
    return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal())


def put_part(upload_id: str, number: int, data: bytes) -> None:
    """Keep one part; putting it again replaces it."""
    folder = parts_folder(upload_id)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / new_id("tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / str(number))


def join_parts(upload_id: str, count: int) -> Blob:
    """Parts 0 .. count-1 become one blob."""
    folder = parts_folder(upload_id)

    def chunks() -> Iterator[bytes]:
        for number in range(count):
            with (folder / str(number)).open("rb") as file:
                yield from read_chunks(file)

    return put(chunks())


def drop_parts(upload_id: str) -> None:
    shutil.rmtree(parts_folder(upload_id), ignore_errors=True)


def scratch_folders() -> list[Path]:
    """Folders whose entries are only of use while an upload lasts."""
    return [_root() / "tmp", _root() / "parts", _root() / "validations"]


def _root() -> Path:
    root: Path = settings.ENVIRONMENT.data_dir
    return root


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
