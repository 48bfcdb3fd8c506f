"""A file or folder on its way up, in one request or in parts."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

from oolong.client import archives, models
from oolong.client.aio.connection import AsyncConnection
from oolong.client.archives import Body, Progress, body_of, counted, missing_parts
from oolong.client.async_primitives import in_thread
from oolong.client.request_spec import RequestSpec, format_path, post

UPLOAD_SECONDS = 600.0
BINARY = {"Content-Type": "application/octet-stream"}


async def upload(
    connection: AsyncConnection, path: Path, *, purpose: str, progress: Progress | None = None
) -> models.Upload:
    body = await in_thread(body_of, path)
    if body.size > archives.ONE_REQUEST_BYTES:
        return await _in_parts(connection, body, purpose=purpose, progress=progress)

    async def chunks() -> AsyncIterator[bytes]:
        for chunk in counted(body, progress):
            yield chunk

    headers = {**BINARY, "Content-Length": str(body.size), "X-Content-SHA256": body.sha256}
    params = {"filename": body.filename, "purpose": purpose}
    # The same bytes twice are one upload.
    request = RequestSpec("POST", "uploads", models.Upload, params=params, headers=headers, idempotent=True)
    return await connection.send_with(request, chunks, timeout_seconds=UPLOAD_SECONDS)


async def _in_parts(
    connection: AsyncConnection, body: Body, *, purpose: str, progress: Progress | None
) -> models.Upload:
    asked = {"filename": body.filename, "purpose": purpose, "bytes": body.size, "sha256": body.sha256}
    session = await connection.send(post("upload-sessions", models.UploadSession, body=asked))
    if session.upload is not None:
        return session.upload
    missing = missing_parts(session)
    sent = body.size - sum(part.size for part in missing)
    for part in missing:
        data = await in_thread(body.read, part.offset, part.size)
        headers = {**BINARY, "X-Part-SHA256": hashlib.sha256(data).hexdigest()}
        path = format_path("upload-sessions/{}/parts/{}", (session.id, str(part.number)))
        await connection.send(RequestSpec("PUT", path, models.UploadSession, content=data, headers=headers))
        sent += part.size
        if progress is not None:
            progress(sent, body.size)
    return await connection.send(post("upload-sessions/{}/complete", models.Upload, session.id))
