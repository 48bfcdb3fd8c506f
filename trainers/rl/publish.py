"""Published weights: a version's way to the engines, a directory that is either complete or not there."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from oolong.contracts.rollout import PublishedWeights
from trainers.models.export import (
    MANIFEST_FILE,
    WEIGHTS_FILE,
    companion_files,
    file_sha256,
    fsync_directory,
    link_or_copy,
    tensor_table,
    write_json,
    write_weights,
)


@dataclass(frozen=True)
class Companion:
    """A file that every version carries unchanged: hashed once."""

    path: Path
    bytes: int
    sha256: str


class Publisher:
    """Writes `v%08d` directories. Who deletes them is the controller, which knows who still loads."""

    def __init__(self, weights_directory: Path, model_directory: Path) -> None:
        self._directory = weights_directory
        self._directory.mkdir(parents=True, exist_ok=True)
        for left_over in self._directory.glob(".tmp-*"):
            shutil.rmtree(left_over)
        self._companions = [
            Companion(path, path.stat().st_size, file_sha256(path))
            for path in companion_files(model_directory)
        ]

    def write(self, version: int, tensors: dict[str, torch.Tensor]) -> PublishedWeights:
        """Write, fsync and rename; a directory left by an earlier attempt at the same version is replaced."""
        target = self._directory / f"v{version:08d}"
        temporary = self._directory / f".tmp-{target.name}"
        temporary.mkdir()
        sha256 = write_weights(tensors, temporary / WEIGHTS_FILE)
        for companion in self._companions:
            link_or_copy(companion.path, temporary / companion.path.name)
        files = [
            {"name": WEIGHTS_FILE, "bytes": (temporary / WEIGHTS_FILE).stat().st_size, "sha256": sha256},
            *({"name": one.path.name, "bytes": one.bytes, "sha256": one.sha256} for one in self._companions),
        ]
        manifest = write_json(
            temporary / MANIFEST_FILE, {"version": version, "files": files, "tensors": tensor_table(tensors)}
        )
        fsync_directory(temporary)
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
        fsync_directory(self._directory)
        return PublishedWeights(
            version=version, directory=str(target), manifest_sha256=hashlib.sha256(manifest).hexdigest()
        )
