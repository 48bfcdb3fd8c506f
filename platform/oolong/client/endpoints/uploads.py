"""Files on their way up: in one request, or in parts of a session that can be gone on with."""

from __future__ import annotations

import hashlib

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec, format_path
from oolong.client.models import Upload, UploadSession


def upload(filename: str, purpose: str, sha256: str, size: int) -> RequestSpec[Upload]:
    """The body is streamed beside it. The same bytes twice are one upload."""
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Length": str(size),
        "X-Content-SHA256": sha256,
    }
    params = {"filename": filename, "purpose": purpose}
    return RequestSpec("POST", "uploads", Upload, params=params, headers=headers, idempotent=True)


def begin(filename: str, purpose: str, size: int, sha256: str) -> RequestSpec[UploadSession]:
    body = {"filename": filename, "purpose": purpose, "bytes": size, "sha256": sha256}
    return request_spec.post("upload-sessions", UploadSession, body=body)


def put_part(session_id: str, number: int, data: bytes) -> RequestSpec[UploadSession]:
    headers = {"Content-Type": "application/octet-stream", "X-Part-SHA256": hashlib.sha256(data).hexdigest()}
    path = format_path("upload-sessions/{}/parts/{}", (session_id, str(number)))
    return RequestSpec("PUT", path, UploadSession, content=data, headers=headers)


def complete(session_id: str) -> RequestSpec[Upload]:
    return request_spec.post("upload-sessions/{}/complete", Upload, session_id)
