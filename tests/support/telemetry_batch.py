"""Bodies of `POST /agent/telemetry` as an agent sends them."""

from __future__ import annotations

import msgspec

from oolong.contracts.agent import TelemetryBatchHead, TelemetryChunk


def encode_batch(*chunks: tuple[TelemetryChunk, bytes]) -> bytes:
    head = TelemetryBatchHead(chunks=[chunk for chunk, _ in chunks])
    return b"".join([msgspec.json.encode(head), b"\n", *(body for _, body in chunks)])


def single_chunk(job_id: str, file: str, body: bytes, *, offset: int = 0) -> bytes:
    """Body with one chunk of one file."""
    chunk = TelemetryChunk(job_id=job_id, file=file, offset=offset, bytes=len(body))
    return encode_batch((chunk, body))
