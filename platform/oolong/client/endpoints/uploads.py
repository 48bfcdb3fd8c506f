"""Files on their way up: in one request, or in parts of a session that can be gone on with."""

from __future__ import annotations

import hashlib

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call, filled
from oolong.client.models import Upload, UploadSession


def upload(filename: str, purpose: str, sha256: str, size: int) -> Call[Upload]:
    """The body is streamed beside it. The same bytes twice are one upload."""
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Length": str(size),
        "X-Content-SHA256": sha256,
    }
    params = {"filename": filename, "purpose": purpose}
    return Call("POST", "uploads", Upload, params=params, headers=headers, harmless=True)


def begin(filename: str, purpose: str, size: int, sha256: str) -> Call[UploadSession]:
    body = {"filename": filename, "purpose": purpose, "bytes": size, "sha256": sha256}
    return call.post("upload-sessions", UploadSession, body=body)


def put_part(session_id: str, number: int, data: bytes) -> Call[UploadSession]:
    headers = {"Content-Type": "application/octet-stream", "X-Part-SHA256": hashlib.sha256(data).hexdigest()}
    path = filled("upload-sessions/{}/parts/{}", (session_id, str(number)))
    return Call("PUT", path, UploadSession, content=data, headers=headers)


def complete(session_id: str) -> Call[Upload]:
    return call.post("upload-sessions/{}/complete", Upload, session_id)
