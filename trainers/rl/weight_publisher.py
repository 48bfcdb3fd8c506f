"""Publishes a version's weights for the engines, as a directory that is either complete or absent."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from oolong.contracts.lora_adapter import ADAPTER_CONFIG_FILE, ADAPTER_WEIGHTS_FILE, engine_targets
from oolong.contracts.rollout import PublishedWeights
from oolong.contracts.run_spec import LoraSection
from oolong.system.bucket_hashes import bucket_sha256
from trainers.durable_files import fsync_directory, link_or_copy, write_json
from trainers.models.hf_export import (
    MANIFEST_FILE,
    WEIGHTS_FILE,
    auxiliary_files,
    tensor_index,
    write_weights,
)
from trainers.models.lora import peft_config


@dataclass(frozen=True)
class HashedFile:
    """A file of a version. Those that are the same in every version are hashed once."""

    path: Path
    bytes: int
    bucket_sha256: list[str]

    @classmethod
    def of(cls, path: Path) -> HashedFile:
        return cls(path, path.stat().st_size, bucket_sha256(path))

    def to_manifest(self) -> dict[str, object]:
        return {"name": self.path.name, "bytes": self.bytes, "bucket_sha256": self.bucket_sha256}


class WeightPublisher:
    """Writes `v%08d` directories. The controller deletes them once no engine loads them any more.

    A version is a whole model, or with `lora` an adapter in PEFT's format.
    """

    def __init__(
        self, weights_directory: Path, model_directory: Path, *, lora: LoraSection | None = None
    ) -> None:
        self._directory = weights_directory
        self._directory.mkdir(parents=True, exist_ok=True)
        for leftover in self._directory.glob(".tmp-*"):
            shutil.rmtree(leftover)
        self._weights_file = WEIGHTS_FILE if lora is None else ADAPTER_WEIGHTS_FILE
        auxiliary = auxiliary_files(model_directory) if lora is None else [self._write_adapter_config(lora)]
        self._auxiliary_files = [HashedFile.of(path) for path in auxiliary]

    def _write_adapter_config(self, lora: LoraSection) -> Path:
        path = self._directory / ADAPTER_CONFIG_FILE
        targets = engine_targets(lora.targets)
        write_json(path, peft_config(rank=lora.rank, alpha=lora.alpha, targets=targets))
        return path

    def write(self, version: int, tensors: dict[str, torch.Tensor]) -> PublishedWeights:
        """Write and rename. Replaces a directory that an earlier attempt left at the same version.

        The manifest is written last. Only it is fsynced: weights are read through the page cache by processes of the
        same attempt, which a crash of the machine ends, and a checkpoint fsyncs the file that it links.
        """
        target = self._directory / f"v{version:08d}"
        temporary = self._directory / f".tmp-{target.name}"
        temporary.mkdir()
        weights = temporary / self._weights_file
        write_weights(tensors, weights)
        for file in self._auxiliary_files:
            link_or_copy(file.path, temporary / file.path.name)
        files = [
            HashedFile.of(weights).to_manifest(),
            *(one.to_manifest() for one in self._auxiliary_files),
        ]
        index = tensor_index(tensors, file=self._weights_file)
        manifest = write_json(
            temporary / MANIFEST_FILE, {"version": version, "files": files, "tensors": index}
        )
        fsync_directory(temporary)
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
        fsync_directory(self._directory)
        return PublishedWeights(
            version=version, directory=str(target), manifest_sha256=hashlib.sha256(manifest).hexdigest()
        )
