"""An object of a bucket as a file: read from where one is, by one request until somebody seeks."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import IO, Any, cast

from control_plane.assets.storage.blob import CHUNK


class S3Reader(io.RawIOBase):
    def __init__(
        self, client: Any, asked: Callable[[], AbstractContextManager[None]], at: dict[str, str], size: int
    ) -> None:
        self._client, self._asked, self._at, self._size = client, asked, at, size
        self._position = 0
        self._body: Any = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset != self._position:
            self._drop()
            self._position = max(0, base + offset)
        return self._position

    def readinto(self, target: Any) -> int:
        if self._position >= self._size or not len(target):
            return 0
        with self._asked():
            if self._body is None:
                found = self._client.get_object(**self._at, Range=f"bytes={self._position}-")
                self._body = found["Body"]
            data = self._body.read(len(target))
        if not data:
            raise OSError(f"{self._at['Key']} ended at byte {self._position} of {self._size}")
        target[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        self._drop()
        super().close()

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None


def buffered(reader: S3Reader) -> IO[bytes]:
    return cast("IO[bytes]", io.BufferedReader(reader, CHUNK))
