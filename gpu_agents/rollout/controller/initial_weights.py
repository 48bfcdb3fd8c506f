"""Publishes a run's own model as version 0, as a trainer would."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from gpu_agents.rollout.worker.manifest import MANIFEST, InvalidWeights, read_tensors
from oolong.contracts.rollout import PublishedWeights
from oolong.system.bucket_hashes import bucket_sha256

VERSION = 0


def publish_initial_weights(model_directory: str | Path, weights_directory: Path) -> PublishedWeights:
    """Link the model's files and write a manifest of their tensors; nothing is copied. Raises InvalidWeights."""
    model = Path(model_directory).resolve()
    files = sorted(model.glob("*.safetensors"))
    if not files:
        raise InvalidWeights(f"{model} has no *.safetensors files")
    directory = weights_directory / f"v{VERSION:08d}"
    directory.mkdir(parents=True, exist_ok=True)
    for file in sorted(model.iterdir()):
        link = directory / file.name
        if file.is_file() and file.name != MANIFEST and not link.is_symlink():
            link.symlink_to(file)
    manifest = msgspec.json.encode(
        {
            "version": VERSION,
            "files": [_file_entry(file) for file in files],
            "tensors": _tensor_entries(files),
        }
    )
    (directory / MANIFEST).write_bytes(manifest)
    return PublishedWeights(
        version=VERSION, directory=str(directory), manifest_sha256=hashlib.sha256(manifest).hexdigest()
    )


def _file_entry(file: Path) -> dict[str, object]:
    return {"name": file.name, "bytes": file.stat().st_size, "bucket_sha256": bucket_sha256(file)}


def _tensor_entries(files: list[Path]) -> list[dict[str, object]]:
    return [
        {"name": tensor.name, "shape": tensor.shape, "dtype": tensor.dtype, "file": file.name}
        for file in files
        for tensor in read_tensors(file)
    ]
