"""Publishes a version's weights for the engines, as a directory that is either complete or absent."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from oolong.contracts.rollout import PublishedWeights
from trainers.durable_files import file_sha256, fsync_directory, link_or_copy, write_json
from trainers.models.hf_export import (
    MANIFEST_FILE,
    WEIGHTS_FILE,
    auxiliary_files,
    tensor_index,
    write_weights,
)


@dataclass(frozen=True)
class AuxiliaryFile:
    """A file that is the same in every version, hashed once."""

    path: Path
    bytes: int
    sha256: str


class WeightPublisher:
    """Writes `v%08d` directories. The controller deletes them once no engine loads them any more."""

    def __init__(self, weights_directory: Path, model_directory: Path) -> None:
        self._directory = weights_directory
        self._directory.mkdir(parents=True, exist_ok=True)
        for leftover in self._directory.glob(".tmp-*"):
            shutil.rmtree(leftover)
        self._auxiliary_files = [
            AuxiliaryFile(path, path.stat().st_size, file_sha256(path))
            for path in auxiliary_files(model_directory)
        ]

    def write(self, version: int, tensors: dict[str, torch.Tensor]) -> PublishedWeights:
        """Write, fsync and rename. Replaces a directory that an earlier attempt left at the same version."""
        target = self._directory / f"v{version:08d}"
        temporary = self._directory / f".tmp-{target.name}"
        temporary.mkdir()
        sha256 = write_weights(tensors, temporary / WEIGHTS_FILE)
        for file in self._auxiliary_files:
            link_or_copy(file.path, temporary / file.path.name)
        files = [
            {"name": WEIGHTS_FILE, "bytes": (temporary / WEIGHTS_FILE).stat().st_size, "sha256": sha256},
            *(
                {"name": one.path.name, "bytes": one.bytes, "sha256": one.sha256}
                for one in self._auxiliary_files
            ),
        ]
        manifest = write_json(
            temporary / MANIFEST_FILE, {"version": version, "files": files, "tensors": tensor_index(tensors)}
        )
        fsync_directory(temporary)
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
        fsync_directory(self._directory)
        return PublishedWeights(
            version=version, directory=str(target), manifest_sha256=hashlib.sha256(manifest).hexdigest()
        )
