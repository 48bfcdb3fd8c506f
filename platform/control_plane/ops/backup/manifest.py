"""backup.json: what a backup holds."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec
from django.core.management.base import CommandError

FORMAT = 1
NAME = "backup.json"
CHUNK = 1024 * 1024


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    made_at: str
    version: str  # of Oolong
    database: str  # file name of the dump
    database_sha256: str
    database_bytes: int
    postgres: int  # major version of the server
    migrations: list[str]  # "app.name", sorted
    blobs: dict[str, int]  # sha256 -> bytes
    freed: list[str]  # named by a row of the snapshot and freed before they could be copied
    settings: dict[str, str]  # without secrets
    key_fingerprint: str  # of SECRET_KEY, to tell whether a restore has the same one


def read_manifest(folder: Path) -> Manifest:
    """Raises CommandError when the folder is no whole backup, or one of another format."""
    file = folder / NAME
    try:
        manifest = msgspec.json.decode(file.read_bytes(), type=Manifest)
    except FileNotFoundError as error:
        raise CommandError(
            f"{file} does not exist: {folder} is no backup, or one that did not end"
        ) from error
    except msgspec.DecodeError as error:
        raise CommandError(f"{file} is damaged: {error}") from error
    if manifest.format != FORMAT:
        raise CommandError(f"{file} has format {manifest.format}; this version reads format {FORMAT}")
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    temporary = folder / f".{NAME}.new"
    with temporary.open("wb") as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(folder / NAME)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def blob_file(folder: Path, sha256: str) -> Path:
    return folder / "blobs" / sha256[:2] / sha256


def digest(path: Path) -> tuple[str, int]:
    """SHA-256 and size of a file."""
    found, size = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            found.update(chunk)
            size += len(chunk)
    return found.hexdigest(), size
