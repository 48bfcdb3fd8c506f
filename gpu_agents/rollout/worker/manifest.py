"""Verify published weights before an engine loads them (SEMANTICS section 4).

SGLang answers 200 to a directory without half of the tensors, and crashes on a truncated file. So the worker first
verifies the manifest's hash, the files' sizes and hashes, and the tensors' names and shapes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import msgspec

from oolong.contracts.lora_adapter import engine_tensor_shapes
from oolong.contracts.rollout import PublishedWeights
from oolong.contracts.run_spec import LoraSection
from oolong.model_validation.safetensors_header import Tensor, read_header
from oolong.system.bucket_hashes import bucket_sha256

MANIFEST = "manifest.json"


class InvalidWeights(ValueError):
    """Published weights that must not be loaded. The message names the file or the tensor."""


class ManifestFile(msgspec.Struct):
    name: str
    bytes: int
    bucket_sha256: list[str]  # of each bucket of oolong.system.bucket_hashes


class _Tensor(msgspec.Struct):
    name: str
    shape: list[int]
    dtype: str
    file: str


class Manifest(msgspec.Struct):
    version: int
    files: list[ManifestFile]
    tensors: list[_Tensor]


@dataclass(frozen=True)
class ExpectedTensors:
    """Names and shapes of a version's tensors, from the directory that the engine booted from."""

    shapes: dict[str, tuple[int, ...]]
    tied: bool  # the output head is the embedding, and may be absent

    @classmethod
    def of_model(cls, directory: str | Path) -> ExpectedTensors:
        config = json.loads((Path(directory) / "config.json").read_text())
        tied = bool(config.get("tie_word_embeddings", False))
        shapes: dict[str, tuple[int, ...]] = {}
        for file in sorted(Path(directory).glob("*.safetensors")):
            shapes |= {tensor.name: tensor.shape for tensor in read_tensors(file)}
        if not shapes:
            raise InvalidWeights(f"{directory} has no *.safetensors files to read the tensor names from")
        return cls(shapes=_without_head(shapes) if tied else shapes, tied=tied)

    @classmethod
    def of_adapter(cls, directory: str | Path, lora: LoraSection) -> ExpectedTensors:
        """Names and shapes of an adapter's tensors, for the model in `directory`."""
        base = cls.of_model(directory)
        return cls(shapes=engine_tensor_shapes(base.shapes, rank=lora.rank, targets=lora.targets), tied=False)


def check_weights(weights: PublishedWeights, expected: ExpectedTensors) -> None:
    """Raise InvalidWeights unless the directory is complete, intact, and matches the expected model."""
    directory = Path(weights.directory)
    manifest = _read_manifest(directory, weights)
    if manifest.version != weights.version:
        raise InvalidWeights(
            f"the manifest is of version {manifest.version}, version {weights.version} was announced"
        )
    for file in manifest.files:
        _check_file(directory / file.name, file)
    found: dict[str, tuple[int, ...]] = {}
    listed = {file.name for file in manifest.files}
    for name in sorted({tensor.file for tensor in manifest.tensors}):
        if name not in listed:
            raise InvalidWeights(f"{name} has tensors but is missing in the manifest's list of files")
        found |= {tensor.name: tensor.shape for tensor in read_tensors(directory / name)}
    stated = {tensor.name: tuple(tensor.shape) for tensor in manifest.tensors}
    if expected.tied:
        found, stated = _without_head(found), _without_head(stated)
    _compare(stated, expected.shapes, what="the manifest")
    _compare(found, expected.shapes, what="the safetensors files")


def read_tensors(file: Path) -> list[Tensor]:
    """The tensors of a safetensors file. Raises InvalidWeights if the file is damaged."""
    try:
        return read_header(file)
    except ValueError as error:
        raise InvalidWeights(f"{file.name} is not a valid safetensors file: {error}") from error


def _read_manifest(directory: Path, weights: PublishedWeights) -> Manifest:
    try:
        content = (directory / MANIFEST).read_bytes()
    except OSError as error:
        raise InvalidWeights(f"version {weights.version} has no readable {MANIFEST}: {error}") from error
    return decode_manifest(content, weights)


def decode_manifest(content: bytes, weights: PublishedWeights) -> Manifest:
    """Raises InvalidWeights unless this is the manifest that was announced."""
    digest = hashlib.sha256(content).hexdigest()
    if digest != weights.manifest_sha256:
        raise InvalidWeights(f"{MANIFEST} has sha256 {digest}, {weights.manifest_sha256} was announced")
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.DecodeError as error:
        raise InvalidWeights(f"{MANIFEST} cannot be read: {error}") from error
    for file in manifest.files:
        if Path(file.name).name != file.name:
            raise InvalidWeights(f"the manifest names {file.name!r}, which is not a plain file name")
    return manifest


def _check_file(path: Path, stated: ManifestFile) -> None:
    try:
        size = path.stat().st_size
        if size != stated.bytes:
            raise InvalidWeights(f"{stated.name} has {size} bytes, the manifest says {stated.bytes}")
        found = bucket_sha256(path)
    except OSError as error:
        raise InvalidWeights(f"{stated.name} cannot be read: {error}") from error
    if found != stated.bucket_sha256:
        differing = sum(one != other for one, other in zip(found, stated.bucket_sha256, strict=False))
        raise InvalidWeights(
            f"{stated.name}: {differing} of {len(found)} buckets differ from the {len(stated.bucket_sha256)} sha256 "
            "in the manifest"
        )


def _compare(found: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]], *, what: str) -> None:
    missing = sorted(set(expected) - set(found))
    if missing:
        raise InvalidWeights(f"{what} lacks {len(missing)} of {len(expected)} tensors, first {missing[0]}")
    extra = sorted(set(found) - set(expected))
    if extra:
        raise InvalidWeights(f"{what} has {len(extra)} tensors that the model lacks, first {extra[0]}")
    for name, shape in expected.items():
        if found[name] != shape:
            raise InvalidWeights(
                f"{what}: {name} has shape {list(found[name])}, the model's is {list(shape)}"
            )


def _without_head(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in shapes.items() if name != "lm_head.weight"}
