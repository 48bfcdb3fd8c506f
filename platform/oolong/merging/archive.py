"""A model directory with adapters merged, as a tar that is made while it is read."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator

from oolong.merging.folders import WEIGHTS_FILE, Folder, is_auxiliary
from oolong.merging.merge import MergedWeights

MANIFEST_FILE = "MANIFEST.json"  # the last file: names, sizes and hashes of the others
_BLOCK = 512


class MergedArchive:
    def __init__(self, model: Folder, weights: MergedWeights) -> None:
        self._model = {name: file for name, file in sorted(model.items()) if is_auxiliary(name)}
        self._weights = weights
        sizes = {name: file.size for name, file in self._model.items()} | {WEIGHTS_FILE: weights.bytes}
        manifest = _manifest({name: ("0" * 64, size) for name, size in sizes.items()})
        entries = {**sizes, MANIFEST_FILE: len(manifest)}
        self.bytes = 2 * _BLOCK + sum(
            len(_head(name, size)) + size + len(_padding(size)) for name, size in entries.items()
        )

    def chunks(self) -> Iterator[bytes]:
        hashes: dict[str, tuple[str, int]] = {}
        for name, stored in self._model.items():
            data = stored.read()
            hashes[name] = (hashlib.sha256(data).hexdigest(), len(data))
            yield _head(name, len(data)) + data + _padding(len(data))
        digest = hashlib.sha256()
        yield _head(WEIGHTS_FILE, self._weights.bytes)
        for chunk in self._weights.chunks():
            digest.update(chunk)
            yield chunk
        hashes[WEIGHTS_FILE] = (digest.hexdigest(), self._weights.bytes)
        manifest = _manifest(hashes)
        yield _padding(self._weights.bytes) + _head(MANIFEST_FILE, len(manifest)) + manifest
        yield _padding(len(manifest)) + bytes(2 * _BLOCK)


def _manifest(files: dict[str, tuple[str, int]]) -> bytes:
    listed = [{"name": name, "bytes": size, "sha256": sha256} for name, (sha256, size) in files.items()]
    return json.dumps({"files": listed}, indent=1).encode()


def _head(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info.tobuf(tarfile.GNU_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % _BLOCK)
