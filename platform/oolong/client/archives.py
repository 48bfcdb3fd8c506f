"""What a file or folder is when it is uploaded: bytes that can be sent again from the start."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from oolong.client.directory_tar import DirectoryTar
from oolong.client.exchange import file_chunks

Progress = Callable[[int, int], None]  # (bytes so far, bytes in all)


@dataclass(frozen=True)
class Body:
    filename: str
    size: int
    sha256: str
    chunks: Callable[[], Iterator[bytes]]


def body_of(path: Path) -> Body:
    """A file as it is; a folder as a tar archive that has the same bytes each time."""
    if path.is_dir():
        tar = DirectoryTar(path)
        return Body(f"{path.resolve().name}.tar", tar.size, tar.sha256(), tar.chunks)
    digest = hashlib.sha256()
    for chunk in file_chunks(path):
        digest.update(chunk)
    return Body(path.name, path.stat().st_size, digest.hexdigest(), lambda: file_chunks(path))


def counted(body: Body, progress: Progress | None) -> Iterator[bytes]:
    sent = 0
    for chunk in body.chunks():
        yield chunk
        sent += len(chunk)
        if progress is not None:
            progress(sent, body.size)
