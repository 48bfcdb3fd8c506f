"""Atomic file writes, file locks, log tails and sizes."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from local_stack.errors import StackError


def write_atomically(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace the content of `path` atomically: readers see the old or the new text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)


def write_json(path: Path, value: Any, *, mode: int = 0o644) -> None:
    write_atomically(path, json.dumps(value, indent=2, sort_keys=True) + "\n", mode=mode)


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in `path`. Empty if the file is missing or truncated by a crash."""
    try:
        value = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


@contextmanager
def file_lock(
    path: Path,
    *,
    timeout_seconds: float | None = None,
    on_wait: Callable[[], None] | None = None,
    busy: str = "",
) -> Iterator[None]:
    """Hold an exclusive lock on `path`; the kernel releases it when the process exits.

    `on_wait` is called once if another process holds the lock. Raises StackError(`busy`) after `timeout_seconds`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        notified = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if deadline is not None and time.monotonic() >= deadline:
                    raise StackError(
                        busy or f"{path} is locked by another process; try again later"
                    ) from error
            if not notified and on_wait is not None:
                on_wait()
                notified = True
            time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)


def tail(path: Path, *, lines: int = 15) -> str:
    """The last lines of a log; empty if the file does not exist."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 64 * 1024))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def disk_usage(path: Path) -> int:
    """Bytes on disk below `path`; hard links count once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for folder, _, names in os.walk(path, onerror=lambda _: None):
        for name in names:
            try:
                status = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:
                continue
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
    return total


def format_bytes(size: int) -> str:
    """Format bytes in decimal units: `1.2 GB`."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit in ("B", "kB") else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
