"""The files of a job that the agent ships: its outbox, written by the job, and its log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gpu_agents.agent.records import JobRecord
from gpu_agents.agent.settings import DataDirectory
from gpu_agents.agent.untrusted import directory_below, open_file
from oolong.contracts.agent import LONGEST_LINE
from oolong.contracts.attempt import LOG_FILE, OUTBOX_DIRECTORY

MOST_OUTBOX_FILES = 256  # of one incarnation; a job writes one per process
READ_BYTES = 64 * 1024
MOST_SEARCHED = 64 * 1024 * 1024  # bytes in which the end of an oversized line is searched


@dataclass(frozen=True)
class GrowingFile:
    """A path below a directory that the job cannot replace."""

    base: Path
    names: tuple[str, ...]

    @property
    def path(self) -> Path:
        return self.base.joinpath(*self.names)

    @property
    def name(self) -> str:
        return self.names[-1]

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Raises FileNotFoundError, or Untrusted if it is not a regular file of the job."""
        with directory_below(self.base, *self.names[:-1]) as folder:
            with open_file(folder, self.names[-1], shown=self.path) as file:
                yield file


def outbox_files(data: DataDirectory, record: JobRecord, incarnation: int) -> list[GrowingFile]:
    """The outbox files of an incarnation. Raises Untrusted if the outbox is not a directory."""
    directory = data.job(record.attempt_id, record.name, incarnation)
    try:
        with directory_below(directory.parent, directory.name, OUTBOX_DIRECTORY) as folder:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".jsonl"))
    except FileNotFoundError:
        return []
    return [
        GrowingFile(directory.parent, (directory.name, OUTBOX_DIRECTORY, name))
        for name in names[:MOST_OUTBOX_FILES]
    ]


def log_file(data: DataDirectory, record: JobRecord, incarnation: int) -> GrowingFile | None:
    """The log of an incarnation, written by its supervisor."""
    directory = data.supervision(record.attempt_id, record.name, incarnation)
    return GrowingFile(directory, (LOG_FILE,)) if (directory / LOG_FILE).exists() else None


def whole_lines(file: BinaryIO, size: int) -> int:
    """Return the number of bytes, of the first `size`, up to and including the last newline.

    If the last line is longer than LONGEST_LINE, the result lies inside it, so that a job cannot make the agent search
    an endless line.
    """
    end, least = size, max(0, size - LONGEST_LINE)
    while end > least:
        begin = max(least, end - READ_BYTES)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return least


def skip_line(file: BinaryIO, begin: int, end: int) -> int:
    """Return the end of an oversized line that starts at `begin`, including its newline.

    Returns `end` if there is no newline within `MOST_SEARCHED` bytes: the agent must not spend time on a sparse file.
    """
    file.seek(begin)
    at, last = begin, min(end, begin + MOST_SEARCHED)
    while at < last:
        read = file.read(min(READ_BYTES, last - at))
        newline = read.find(b"\n")
        if newline >= 0:
            return at + newline + 1
        if not read:
            break  # truncated while it was read
        at += len(read)
    return end
