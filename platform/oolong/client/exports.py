"""Write one directory of a checkpoint, its model or its LoRA adapter, into a folder. Every file is verified."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from oolong.client.archives import Progress
from oolong.client.errors import OolongError
from oolong.client.models import CheckpointFiles, StoredFile
from oolong.client.transport import file_chunks

MODEL_FOLDER = "hf/"
ADAPTER_FOLDER = "adapter/"
CARD = "README.md"


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
    """The files of the model's directory, or with `adapter` of the LoRA adapter's.

    Raises OolongError when the checkpoint lacks the directory, or the folder is not empty.
    """

    def __init__(
        self, folder: Path, stored: CheckpointFiles, progress: Progress | None, *, adapter: bool = False
    ) -> None:
        self.folder = folder
        self._source = ADAPTER_FOLDER if adapter else MODEL_FOLDER
        self.files = [file for file in stored.files if file.name.startswith(self._source)]
        self._progress = progress
        self._total, self._have = sum(file.bytes for file in self.files), 0
        if not self.files:
            missing = (
                "adapter to export: only runs with model.lora write one. Export the model"
                if adapter
                else "model to export"
            )
            raise OolongError(
                f"checkpoint {stored.id} holds no {self._source} directory, so there is no {missing}"
            )
        if folder.exists() and any(folder.iterdir()):
            raise OolongError(f"{folder} is not empty; name a folder that is, or that is not there yet")

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
