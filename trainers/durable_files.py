"""File operations that survive a crash: fsynced writes, atomic swaps, hashes."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec


def write_bytes(path: Path, data: bytes) -> None:
    """Write and fsync."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, value: Any) -> bytes:
    """Write canonical JSON, fsynced. Returns the bytes."""
    data = msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1) + b"\n"
    write_bytes(path, data)
    return data


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link where both are on one filesystem, else copy. The files are never modified in place."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def atomic_swap(one: Path, other: Path) -> None:
    """Exchange two names atomically (renameat2 with RENAME_EXCHANGE, which the standard library does not offer)."""
    library = ctypes.CDLL(None, use_errno=True)
    at_fdcwd, rename_exchange = -100, 2
    if library.renameat2(at_fdcwd, os.fsencode(one), at_fdcwd, os.fsencode(other), rename_exchange) != 0:
        raise OSError(ctypes.get_errno(), f"cannot swap {one} and {other}")


def fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
