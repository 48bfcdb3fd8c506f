"""Tells the control plane how far a validation or measurement has come: a small file, written again now and then."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from control_plane.assets.background.dataset_ingest.job import PROGRESS_FILE, Progress

EVERY_SECONDS = 0.5


class ProgressFile:
    """`reading` a file counts its bytes behind the first `head`, `rows_seen` is counted up by whoever maps rows."""

    def __init__(self, folder: Path, *, head: int = 0) -> None:
        self._path = folder / PROGRESS_FILE
        self._reading: int | None = None  # a file descriptor
        self._lock = threading.Lock()
        self._bytes_before = -head
        self.rows_seen = 0

    @contextmanager
    def reading(self, source: IO[bytes]) -> Iterator[None]:
        """A duplicate of its descriptor has the same offset, which moves as the process in the sandbox reads."""
        descriptor = os.dup(source.fileno())
        with self._lock:
            self._reading = descriptor
        try:
            yield
        finally:
            with self._lock:
                self._reading = None
                self._bytes_before += os.fstat(descriptor).st_size
            os.close(descriptor)

    @contextmanager
    def written(self) -> Iterator[None]:
        """Written again every half second while this is open."""
        over = threading.Event()

        def write_on() -> None:
            while not over.wait(EVERY_SECONDS):
                self.write()

        writer = threading.Thread(target=write_on, daemon=True)
        writer.start()
        try:
            yield
        finally:
            over.set()
            writer.join()

    def write(self) -> None:
        with self._lock:
            offset = os.lseek(self._reading, 0, os.SEEK_CUR) if self._reading is not None else 0
        now = Progress(bytes_seen=max(0, self._bytes_before + offset), rows_seen=self.rows_seen)
        unfinished = self._path.with_suffix(".tmp")
        unfinished.write_bytes(msgspec.json.encode(now))
        unfinished.rename(self._path)
