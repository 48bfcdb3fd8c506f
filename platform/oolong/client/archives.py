"""What a file or folder is when it is uploaded: bytes that can be sent again from the start."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from oolong.client.directory_tar import DirectoryTar
from oolong.client.models import UploadSession
from oolong.client.transport import file_chunks

Progress = Callable[[int, int], None]  # (bytes so far, bytes in all)


@dataclass(frozen=True)
class Body:
    filename: str
    size: int
    sha256: str
    chunks: Callable[[], Iterator[bytes]]
    read: Callable[[int, int], bytes]  # (offset, size): any part alone


ONE_REQUEST_BYTES = 8 * 1024 * 1024  # what is larger goes in parts, and resumes after a break


def body_of(path: Path) -> Body:
    """A file as it is; a folder as a tar archive that has the same bytes each time."""
    if path.is_dir():
        tar = DirectoryTar(path)
        return Body(f"{path.resolve().name}.tar", tar.size, tar.sha256(), tar.chunks, tar.read)
    digest = hashlib.sha256()
    for chunk in file_chunks(path):
        digest.update(chunk)

    def read(offset: int, size: int) -> bytes:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    return Body(path.name, path.stat().st_size, digest.hexdigest(), lambda: file_chunks(path), read)


def counted(body: Body, progress: Progress | None) -> Iterator[bytes]:
    sent = 0
    for chunk in body.chunks():
        yield chunk
        sent += len(chunk)
        if progress is not None:
            progress(sent, body.size)


@dataclass(frozen=True)
class Part:
    number: int
    offset: int
    size: int


def missing_parts(session: UploadSession) -> list[Part]:
    """What the server does not hold yet."""
    held = set(session.received_parts)
    return [
        Part(
            number,
            number * session.part_bytes,
            min(session.part_bytes, session.bytes - number * session.part_bytes),
        )
        for number in range(session.part_count)
        if number not in held
    ]
