"""A file or folder on its way up, in one request or in parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from oolong.client import archives, calls, models
from oolong.client.archives import Body, Progress, body_of, counted, missing_parts
from oolong.client.sync.connection import Connection
from oolong.client.sync.waiting import in_thread

UPLOAD_SECONDS = 600.0


def upload(
    connection: Connection, path: Path, *, purpose: str, progress: Progress | None = None
) -> models.Upload:
    body = in_thread(body_of, path)
    if body.size > archives.ONE_REQUEST_BYTES:
        return _in_parts(connection, body, purpose=purpose, progress=progress)

    def chunks() -> Iterator[bytes]:
        yield from counted(body, progress)

    call = calls.uploads.upload(body.filename, purpose, body.sha256, body.size)
    return connection.send_with(call, chunks, timeout_seconds=UPLOAD_SECONDS)


def _in_parts(
    connection: Connection, body: Body, *, purpose: str, progress: Progress | None
) -> models.Upload:
    session = connection.send(calls.uploads.begin(body.filename, purpose, body.size, body.sha256))
    if session.upload is not None:
        return session.upload
    missing = missing_parts(session)
    sent = body.size - sum(part.size for part in missing)
    for part in missing:
        data = in_thread(body.read, part.offset, part.size)
        connection.send(calls.uploads.put_part(session.id, part.number, data))
        sent += part.size
        if progress is not None:
            progress(sent, body.size)
    return connection.send(calls.uploads.complete(session.id))
