"""A directory of files named by their SHA-256: written under another name, fsynced, renamed, the folder fsynced."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from control_plane.assets.storage.blob import (
    OWNER,
    Blob,
    ListedBlob,
    PartsGone,
    StorageUnavailable,
    check_name,
    read_chunks,
)
from control_plane.core.infra.ids import new_id


class LocalStorage:
    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, sha256: str) -> Path:
        return self._root / "blobs" / check_name(sha256)[:2] / sha256

    def publish(self, path: Path, blob: Blob) -> None:
        target = self.path(blob.sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.rename(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._copy(path, target)  # it was written on another file system
            path.unlink()
        _sync_folder(target.parent)

    def _copy(self, path: Path, target: Path) -> None:
        """A reader sees nothing of it before it is whole."""
        temporary = self._scratch() / new_id("tmp")
        try:
            with path.open("rb") as source, temporary.open("wb") as file:
                shutil.copyfileobj(source, file, 1024 * 1024)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(target)
        finally:
            temporary.unlink(missing_ok=True)

    def has(self, sha256: str) -> bool:
        return self.path(sha256).is_file()

    def size(self, sha256: str) -> int:
        return self.path(sha256).stat().st_size

    def open(self, sha256: str) -> IO[bytes]:
        return self.path(sha256).open("rb")

    def lend(self, sha256: str) -> str:
        return str(self.path(sha256))

    def delete(self, sha256: str) -> None:
        self.path(sha256).unlink(missing_ok=True)

    def listed(self) -> Iterator[ListedBlob]:
        for file in (self._root / "blobs").glob("??/*"):
            with suppress(FileNotFoundError):  # deleted by another process
                status = file.stat()
                yield ListedBlob(file.name, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))

    def touched_at(self, sha256: str) -> datetime:
        return datetime.fromtimestamp(self.path(sha256).stat().st_mtime, UTC)

    def owner(self) -> str:
        with suppress(FileNotFoundError):
            return (self._root / OWNER).read_text()
        return ""

    def set_owner(self, owner: str) -> None:
        temporary = self._scratch() / new_id("tmp")
        temporary.write_text(owner)
        temporary.rename(self._root / OWNER)

    def parts_folder(self, upload_id: str) -> Path:
        return self._root / "parts" / upload_id

    def put_part(self, upload_id: str, number: int, data: bytes) -> None:
        folder = self.parts_folder(upload_id)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / new_id("tmp")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(folder / str(number))
        except FileNotFoundError as error:  # the folder was dropped under our hands
            raise PartsGone(upload_id) from error

    def received_parts(self, upload_id: str) -> list[int]:
        with suppress(FileNotFoundError):
            return sorted(
                int(entry.name) for entry in self.parts_folder(upload_id).iterdir() if entry.name.isdecimal()
            )
        return []

    def join_parts(self, upload_id: str, count: int) -> Blob:
        temporary = self._scratch() / new_id("tmp")
        digest, size = hashlib.sha256(), 0
        try:
            with temporary.open("wb") as target:
                for chunk in self._chunks(upload_id, count):
                    digest.update(chunk)
                    size += len(chunk)
                    target.write(chunk)
                target.flush()
                os.fsync(target.fileno())
            blob = Blob(digest.hexdigest(), size)
            self.publish(temporary, blob)
        finally:
            temporary.unlink(missing_ok=True)
        return blob

    def drop_parts(self, upload_id: str) -> None:
        shutil.rmtree(self.parts_folder(upload_id), ignore_errors=True)

    def drop_unfinished(self, *, before: datetime) -> int:
        return drop_old_entries(self._root / "parts", before=before)

    def check(self) -> None:
        try:
            probe = self._scratch() / new_id("tmp")
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise StorageUnavailable(f"{self._root} cannot be written: {error.strerror or error}") from error

    def _chunks(self, upload_id: str, count: int) -> Iterator[bytes]:
        for number in range(count):
            try:
                with (self.parts_folder(upload_id) / str(number)).open("rb") as file:
                    yield from read_chunks(file)
            except FileNotFoundError as error:
                raise PartsGone(upload_id) from error

    def _scratch(self) -> Path:
        folder = self._root / "tmp"
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def drop_old_entries(folder: Path, *, before: datetime) -> int:
    """Remove files and folders that nobody has touched since `before`; how many."""
    dropped = 0
    for entry in folder.iterdir() if folder.is_dir() else ():
        try:
            if entry.stat().st_mtime >= before.timestamp():
                continue
        except FileNotFoundError:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
        dropped += 1
    return dropped


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
