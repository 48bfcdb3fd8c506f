"""What every storage speaks of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, BinaryIO, Protocol

from control_plane.core.api.errors import Problem

CHUNK = 1024 * 1024
OWNER = "owner"  # the name of the object that says whose store this is
_Bytes = bytes  # `Blob.bytes` hides the type inside its class


@dataclass(frozen=True)
class Blob:
    sha256: str
    bytes: int

    @classmethod
    def of(cls, data: _Bytes) -> Blob:
        return cls(hashlib.sha256(data).hexdigest(), len(data))


@dataclass(frozen=True)
class ListedBlob:
    """A blob as the storage lists it, unread."""

    sha256: str
    bytes: int
    touched_at: datetime


class PartsGone(Exception):
    """The parts of an upload were joined or dropped while another request worked on them."""


class StorageUnavailable(Problem):
    """The storage does not answer, or refuses: 503, and nothing half-done stays."""

    def __init__(self, why: str) -> None:
        super().__init__(
            503, "storage_unavailable", f"the storage of files cannot be used now: {why}; try again later",
            headers={"Retry-After": "5"},
        )  # fmt: skip


class Storage(Protocol):
    def publish(self, path: Path, blob: Blob) -> None:
        """Make a finished, fsynced local file a blob. The file is gone afterwards; its hash is taken at its word."""

    def has(self, sha256: str) -> bool: ...

    def size(self, sha256: str) -> int:
        """Raises FileNotFoundError."""

    def open(self, sha256: str) -> IO[bytes]:
        """Seekable, for reading. Raises FileNotFoundError."""

    def lend(self, sha256: str) -> str:
        """A path or a signed URL, by which another process on this machine reads the blob for an hour or so."""

    def delete(self, sha256: str) -> None:
        """One that is gone already is no fault."""

    def listed(self) -> Iterator[ListedBlob]:
        """Every blob that is there."""

    def touched_at(self, sha256: str) -> datetime:
        """When it was last written. Raises FileNotFoundError."""

    def owner(self) -> str:
        """What `set_owner` wrote last; "" before."""

    def set_owner(self, owner: str) -> None: ...

    def put_part(self, upload_id: str, number: int, data: bytes) -> None:
        """Putting a part again replaces it."""

    def received_parts(self, upload_id: str) -> list[int]: ...

    def join_parts(self, upload_id: str, count: int) -> Blob:
        """Parts 0 .. count-1 become one blob. Raises PartsGone when one is not there any more."""

    def drop_parts(self, upload_id: str) -> None: ...

    def drop_unfinished(self, *, before: datetime) -> int:
        """Clean up parts and half-sent blobs that nobody has touched since `before`; how many."""

    def check(self) -> None:
        """Whether it can be written and read. Raises StorageUnavailable, which names what is wrong."""


def check_name(sha256: str) -> str:
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise ValueError(f"{sha256!r} is not a SHA-256 in lower-case hexadecimal")
    return sha256


def read_chunks(stream: BinaryIO | IO[bytes]) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK):
        yield chunk
