"""Write a checkpoint's model or LoRA adapter, or the model merged of both, into a folder. Every file is verified."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from oolong.client.archives import Progress
from oolong.client.downloads import Download
from oolong.client.errors import OolongError
from oolong.client.models import CheckpointFiles, StoredFile
from oolong.client.transport import file_chunks

MODEL_FOLDER = "hf/"
ADAPTER_FOLDER = "adapter/"
CARD = "README.md"


def require_empty(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise OolongError(f"{folder} is not empty; name a folder that is, or that is not there yet")


class MergedExport:
    """The merged model, which arrives as a tar beside the folder and is verified by the manifest in it.

    Raises OolongError when the folder is not empty.
    """

    def __init__(self, folder: Path, progress: Progress | None) -> None:
        require_empty(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        archive = folder.with_name(folder.name + ".tar")
        archive.with_name(archive.name + ".part").unlink(missing_ok=True)  # it is made again each time
        self.download = Download(archive, progress=progress)

    def finish(self, card: bytes) -> Path:
        """Unpack and verify. Raises OolongError, and removes what came, when a file is not the manifest's."""
        self.folder.mkdir(exist_ok=True)
        archive = self.download.target
        try:
            found = {}
            with tarfile.open(archive, "r:") as tar:
                for member in tar:
                    source = tar.extractfile(member)
                    if "/" in member.name or member.name in (".", "..") or source is None:
                        raise OolongError(f"the archive names {member.name!r}, which is no file of a model")
                    found[member.name] = _copy_hashed(source, self.folder / member.name)
            manifest = self.folder / "MANIFEST.json"
            listed = json.loads(manifest.read_bytes())["files"]
            if {one["name"]: one["sha256"] for one in listed} != {
                name: sha256 for name, sha256 in found.items() if name != manifest.name
            }:
                raise OolongError(f"the files of {archive} are not those of its manifest; export again")
            manifest.unlink()
        except (OolongError, tarfile.TarError, OSError, ValueError, KeyError, TypeError) as error:
            shutil.rmtree(self.folder)
            raise OolongError(f"{archive}: {error}") from error
        finally:
            archive.unlink()
        (self.folder / CARD).write_bytes(card)
        return self.folder


def _copy_hashed(source: IO[bytes], target: Path) -> str:
    digest = hashlib.sha256()
    with target.open("wb") as file:
        while chunk := source.read(1024 * 1024):
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


class PartDownload:
    """One file that lies inside a larger download; it arrives under a temporary name."""

    def __init__(self, target: Path, file: StoredFile, arrived: Progress) -> None:
        self._target, self._file, self._arrived = target, file, arrived
        self._part = target.with_name(target.name + ".part")
        self._part.unlink(missing_ok=True)
        self._part.touch()
        self._have = 0

    @property
    def complete(self) -> bool:
        return self._have >= self._file.bytes

    def headers(self) -> dict[str, str]:
        first, last = self._file.offset + self._have, self._file.offset + self._file.bytes - 1
        return {"Accept-Encoding": "identity", "Range": f"bytes={first}-{last}"}

    def begin(self, status: int, headers: Mapping[str, str]) -> bool:
        if status != 206:
            raise OolongError(f"{self._file.name}: the server answers {status} to a ranged request, not 206")
        return True

    def write(self, chunk: bytes) -> None:
        with self._part.open("ab") as file:
            file.write(chunk)
        self._have += len(chunk)
        self._arrived(len(chunk), self._file.bytes)

    def finish(self) -> None:
        """Verify and rename. Raises OolongError, and removes what came, when it is not the manifest's file."""
        digest = hashlib.sha256()
        for chunk in file_chunks(self._part):
            digest.update(chunk)
        if digest.hexdigest() != self._file.sha256:
            self._part.unlink()
            raise OolongError(
                f"{self._file.name}: sha256 is {digest.hexdigest()}, the manifest says {self._file.sha256 or 'nothing'}"
            )
        self._part.rename(self._target)


class Export:
    """The files of the model's directory, or of the adapter's in the checkpoint of a LoRA run.

    Raises OolongError when the checkpoint has neither, or the folder is not empty.
    """

    def __init__(
        self, folder: Path, stored: CheckpointFiles, progress: Progress | None, *, content: str = "model"
    ) -> None:
        self.folder = folder
        self._source = ADAPTER_FOLDER if content == "adapter" else MODEL_FOLDER
        self.files = [file for file in stored.files if file.name.startswith(self._source)]
        self._progress = progress
        self._total, self._have = sum(file.bytes for file in self.files), 0
        if not self.files:
            raise OolongError(
                f"checkpoint {stored.id} holds no {self._source}, so there is nothing to export"
            )
        require_empty(folder)

    def part(self, file: StoredFile) -> PartDownload:
        name = PurePosixPath(file.name.removeprefix(self._source))
        if name.is_absolute() or ".." in name.parts:
            raise OolongError(
                f"the checkpoint names a file {file.name!r}, which would lie outside of {self.folder}"
            )
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        return PartDownload(target, file, self._arrived)

    def finish(self, card: bytes) -> Path:
        (self.folder / CARD).write_bytes(card)
        return self.folder

    def _arrived(self, size: int, _of: int) -> None:
        self._have += size
        if self._progress is not None:
            self._progress(self._have, self._total)
