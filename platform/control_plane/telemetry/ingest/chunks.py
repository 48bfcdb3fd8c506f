"""Parse the request body of a telemetry batch: one line of JSON that describes the chunks, then their bytes."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from control_plane.core.api.query_params import invalid_parameter
from oolong.contracts.agent import BATCH_CHUNKS, BATCH_HEAD_BYTES, TelemetryBatchHead

LOG_PREFIX = "output.log#"
MAX_FILE_NAME_LENGTH = 120


@dataclass(frozen=True)
class Chunk:
    """Bytes of a file that begin at byte `offset`."""

    job_id: str
    name: str  # "output.log#<incarnation>" for a log, otherwise an outbox file's
    offset: int
    body: bytes
    skipped: int = 0  # length of a line that was too long to ship, in place of a body

    @property
    def file(self) -> tuple[str, str]:
        return self.job_id, self.name

    @property
    def is_log(self) -> bool:
        return self.name.startswith(LOG_PREFIX)

    @property
    def has_valid_name(self) -> bool:
        return 0 < len(self.name) <= MAX_FILE_NAME_LENGTH and "/" not in self.name


def parse_batch(body: bytes) -> list[Chunk]:
    """See contracts.agent.TelemetryBatchHead. Raises Problem 422."""
    line, newline, content = body.partition(b"\n")
    if not newline or len(line) > BATCH_HEAD_BYTES:
        size = min(len(line), BATCH_HEAD_BYTES + 1)
        raise invalid_parameter(
            "chunks", f"no newline in the first {size} bytes; the body begins with a line of JSON"
        )
    try:
        heads = msgspec.json.decode(line, type=TelemetryBatchHead).chunks
    except msgspec.DecodeError as error:
        raise invalid_parameter("chunks", f"the first line is not a TelemetryBatchHead: {error}") from error
    if len(heads) > BATCH_CHUNKS:
        raise invalid_parameter("chunks", f"{len(heads)} chunks; send at most {BATCH_CHUNKS} at once")
    chunks: list[Chunk] = []
    begin = 0
    for n, head in enumerate(heads):
        if "\0" in head.job_id + head.file:
            raise invalid_parameter(f"chunks/{n}", f"{head}: names have no NUL")
        if head.skipped and (head.bytes or head.file.startswith(LOG_PREFIX)):
            raise invalid_parameter(
                f"chunks/{n}", f"{head}: skipped stands for one line of an outbox, in place of bytes"
            )
        chunk = content[begin : begin + head.bytes]
        chunks.append(Chunk(head.job_id, head.file, head.offset, chunk, head.skipped))
        begin += head.bytes
    if begin != len(content):
        raise invalid_parameter(
            "chunks", f"the chunks have {begin} bytes, and {len(content)} follow the first line"
        )
    if len({chunk.file for chunk in chunks}) < len(chunks):
        raise invalid_parameter(
            "chunks", "two chunks of the same file; send what follows with the next batch"
        )
    return chunks
