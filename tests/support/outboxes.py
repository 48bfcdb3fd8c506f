"""What a job has written into its outbox, read while it may be writing."""

from __future__ import annotations

from pathlib import Path

from oolong.contracts.attempt import OUTBOX_DIRECTORY
from oolong.contracts.telemetry import AnyLine, decode_line


def written_lines(job_directory: Path) -> list[AnyLine]:
    """Every whole line; of the last one a reader may see the beginning only."""
    found = []
    for file in sorted((job_directory / OUTBOX_DIRECTORY).glob("*.jsonl")):
        data = file.read_bytes()
        found += [decode_line(text) for text in data[: data.rfind(b"\n") + 1].splitlines()]
    return found
