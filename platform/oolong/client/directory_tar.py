"""A directory as a tar archive that always has the same bytes, and of which any part can be read alone.

Names are sorted, owners and times are zero, links are not followed and not allowed: the same files give the
same sha256 everywhere. Nothing is written to disk: parts are computed from the files when they are asked for,
so an upload can resume at any part.
"""

from __future__ import annotations

import bisect
import hashlib
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK = 512
READ_BYTES = 1024 * 1024


class FileChanged(OSError):
    """A file became shorter while the archive was read."""


@dataclass(frozen=True)
class _Segment:
    begins: int
    size: int
    data: bytes | None  # the bytes themselves, or
    path: Path | None  # the file they are read from


class DirectoryTar:
    """The archive of a directory's regular files. The files must not change while it is in use."""

    def __init__(self, directory: Path) -> None:
        self._segments: list[_Segment] = []
        self.size = 0
        if not directory.is_dir():
            raise NotADirectoryError(f"{directory} is not a directory")
        for path in sorted(directory.rglob("*"), key=lambda found: found.relative_to(directory).as_posix()):
            if path.is_symlink() and path.is_dir():
                raise ValueError(f"{path} is a link to a directory; copy what it points to into {directory}")
            if path.is_file():
                self._add(path, path.relative_to(directory).as_posix())
        if not self._segments:
            raise ValueError(f"{directory} holds no file")
        self._append(data=bytes(2 * BLOCK))
        self._append(data=bytes(-self.size % tarfile.RECORDSIZE))
        self._begins = [segment.begins for segment in self._segments]

    def read(self, offset: int, size: int) -> bytes:
        """Bytes [offset, offset + size) of the archive; shorter at its end."""
        return b"".join(self.chunks(offset, size))

    def chunks(self, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        """The same in pieces of at most 1 MiB."""
        end = self.size if size is None else min(self.size, offset + size)
        index = bisect.bisect_right(self._begins, offset) - 1
        while offset < end:
            segment = self._segments[index]
            within = offset - segment.begins
            wanted = min(end - offset, segment.size - within)
            if segment.data is not None:
                yield segment.data[within : within + wanted]
            else:
                yield from self._file_chunks(segment, within, wanted)
            offset += wanted
            index += 1

    def sha256(self, progress: Callable[[int], None] | None = None) -> str:
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
            if progress is not None:
                progress(len(chunk))
        return digest.hexdigest()

    def _file_chunks(self, segment: _Segment, within: int, wanted: int) -> Iterator[bytes]:
        assert segment.path is not None
        with segment.path.open("rb") as file:
            file.seek(within)
            while wanted:
                chunk = file.read(min(READ_BYTES, wanted))
                if not chunk:
                    raise FileChanged(
                        f"{segment.path} became shorter than {segment.size} bytes while it was being read"
                    )
                wanted -= len(chunk)
                yield chunk

    def _add(self, path: Path, name: str) -> None:
        size = path.stat().st_size
        header = tarfile.TarInfo(name)
        header.size = size
        header.mode = 0o644
        self._append(data=header.tobuf(tarfile.PAX_FORMAT))
        if size:
            self._append(path=path, size=size)
            self._append(data=bytes(-size % BLOCK))

    def _append(self, *, data: bytes | None = None, path: Path | None = None, size: int = 0) -> None:
        size = len(data) if data is not None else size
        if size:
            self._segments.append(_Segment(self.size, size, data, path))
            self.size += size
