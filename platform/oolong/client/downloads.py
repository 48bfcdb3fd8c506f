"""A file on its way here: resumed by Range, verified by sha256, renamed into place when whole."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from oolong.client.archives import Progress
from oolong.client.errors import OolongError
from oolong.client.transport import file_chunks


class PartialDownload(Protocol):
    """Bytes that a client fetches: it asks with `headers`, until `complete`, and then has them checked."""

    @property
    def complete(self) -> bool: ...

    def headers(self) -> dict[str, str]: ...

    def begin(self, status: int, headers: Mapping[str, str]) -> bool:
        """Whether the body of this answer is wanted; if not, it is asked again."""
        ...

    def write(self, chunk: bytes) -> None: ...

    def finish(self) -> None: ...


class Download:
    """What arrives lies in `<target>.part` until it is complete, so a later try resumes from there."""

    def __init__(self, target: Path, *, sha256: str | None = None, progress: Progress | None = None) -> None:
        self.target = target
        self.complete = False
        self._part = target.with_name(target.name + ".part")
        self._sha256 = sha256
        self._progress = progress
        self._have = self._part.stat().st_size if self._part.exists() else 0
        self._total = 0

    def headers(self) -> dict[str, str]:
        plain = {"Accept-Encoding": "identity"}
        return plain | {"Range": f"bytes={self._have}-"} if self._have else plain

    def begin(self, status: int, headers: Mapping[str, str]) -> bool:
        if status == 416:  # the server has no bytes after what is here: start over
            self._part.unlink()
            self._have = 0
            return False
        if status != 206:  # the server sends all of it
            self._have = 0
            self._part.write_bytes(b"")
        self._total = self._have + int(headers.get("Content-Length", 0))
        self.complete = self._have >= self._total
        return True

    def write(self, chunk: bytes) -> None:
        with self._part.open("ab") as file:
            file.write(chunk)
        self._have += len(chunk)
        self.complete = self._have >= self._total
        if self._progress is not None:
            self._progress(self._have, self._total)

    def finish(self) -> None:
        """Verify and rename. Raises OolongError, and removes the part, when the bytes are not the promised ones."""
        if self._sha256 is not None:
            digest = hashlib.sha256()
            for chunk in file_chunks(self._part):
                digest.update(chunk)
            if digest.hexdigest() != self._sha256:
                self._part.unlink()
                raise OolongError(
                    f"{self.target}: sha256 is {digest.hexdigest()}, expected {self._sha256}; the download was removed"
                )
        self._part.rename(self.target)
