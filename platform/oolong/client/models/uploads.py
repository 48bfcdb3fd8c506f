"""Files on their way up."""

from __future__ import annotations

from oolong.client.models.answer import Answer


class Upload(Answer):
    id: str
    filename: str
    bytes: int
    sha256: str


class UploadSession(Answer):
    id: str
    bytes: int
    part_bytes: int
    part_count: int
    received_parts: list[int]
    upload: Upload | None = None
