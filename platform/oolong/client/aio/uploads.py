"""A file or folder on its way up, in one request or in parts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from oolong.client import archives, endpoints, models
from oolong.client.aio.connection import AsyncConnection
from oolong.client.archives import Body, Progress, body_of, counted, missing_parts
from oolong.client.async_primitives import in_thread

UPLOAD_SECONDS = 600.0


async def upload(
    connection: AsyncConnection, path: Path, *, purpose: str, progress: Progress | None = None
) -> models.Upload:
    body = await in_thread(body_of, path)
    if body.size > archives.ONE_REQUEST_BYTES:
        return await _in_parts(connection, body, purpose=purpose, progress=progress)

    async def chunks() -> AsyncIterator[bytes]:
        for chunk in counted(body, progress):
            yield chunk

    request = endpoints.uploads.upload(body.filename, purpose, body.sha256, body.size)
    return await connection.send_with(request, chunks, timeout_seconds=UPLOAD_SECONDS)


async def _in_parts(
    connection: AsyncConnection, body: Body, *, purpose: str, progress: Progress | None
) -> models.Upload:
    session = await connection.send(endpoints.uploads.begin(body.filename, purpose, body.size, body.sha256))
    if session.upload is not None:
        return session.upload
    missing = missing_parts(session)
    sent = body.size - sum(part.size for part in missing)
    for part in missing:
        data = await in_thread(body.read, part.offset, part.size)
        await connection.send(endpoints.uploads.put_part(session.id, part.number, data))
        sent += part.size
        if progress is not None:
            progress(sent, body.size)
    return await connection.send(endpoints.uploads.complete(session.id))
