"""The files of a model or an adapter, in a directory or inside a tar."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from oolong.merging.tensors import MergeError, StoredTensor, read_tensors

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".msgpack", ".h5")


@dataclass(frozen=True)
class StoredFile:
    file: IO[bytes]
    offset: int
    size: int

    def read(self) -> bytes:
        self.file.seek(self.offset)
        return self.file.read(self.size)


Folder = Mapping[str, StoredFile]  # by name; files of subfolders are left out


def is_auxiliary(name: str) -> bool:
    """Whether a file of a model directory is its config, tokenizer or chat template, and not its weights."""
    return not (
        name.startswith(".")
        or name.endswith((*_WEIGHT_SUFFIXES, ".index.json"))
        or name in ("manifest.json", "README.md")
    )


def open_directory(directory: Path, stack: ExitStack) -> dict[str, StoredFile]:
    """Open every file of a directory. The stack closes them."""
    return {
        path.name: StoredFile(stack.enter_context(path.open("rb")), 0, path.stat().st_size)
        for path in sorted(directory.iterdir())
        if path.is_file()
    }


def folder_of_tar(archive: IO[bytes], *, marker: str) -> dict[str, StoredFile]:
    """The files beside the `marker`, such as config.json, that lies highest in a tar."""
    try:
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            members = [member for member in tar if member.isreg()]
    except tarfile.TarError as error:
        raise MergeError(f"not a readable tar: {error}") from error
    parents = [
        parent
        for parent, _, name in (member.name.removeprefix("./").rpartition("/") for member in members)
        if name == marker
    ]
    if not parents:
        raise MergeError(f"the archive has no {marker}")
    parent = min(parents, key=lambda one: (one.count("/"), len(one)))
    files = {}
    for member in members:
        folder, _, name = member.name.removeprefix("./").rpartition("/")
        if folder == parent:
            files[name] = StoredFile(archive, member.offset_data, member.size)
    return files


def read_json(folder: Folder, name: str) -> dict[str, Any]:
    if name not in folder:
        raise MergeError(f"{name} is missing")
    try:
        document = json.loads(folder[name].read())
    except ValueError as error:
        raise MergeError(f"{name} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise MergeError(f"{name} is not a JSON object")
    return document


def tensors_in(folder: Folder, name: str) -> dict[str, StoredTensor]:
    if name not in folder:
        raise MergeError(f"{name} is missing")
    return read_tensors(folder[name].file, start=folder[name].offset, name=name)


def model_tensors(folder: Folder) -> dict[str, StoredTensor]:
    """The tensors of a model, of one file or of the shards in its index."""
    if INDEX_FILE not in folder:
        return tensors_in(folder, WEIGHTS_FILE)
    listed = read_json(folder, INDEX_FILE).get("weight_map")
    if not isinstance(listed, dict):
        raise MergeError(f"{INDEX_FILE} has no weight_map")
    shards = {shard: tensors_in(folder, shard) for shard in sorted({str(one) for one in listed.values()})}
    missing = [name for name, shard in listed.items() if name not in shards[str(shard)]]
    if missing:
        raise MergeError(f"{missing[0]} is in {INDEX_FILE} and not in {listed[missing[0]]}")
    return {name: shards[str(shard)][name] for name, shard in listed.items()}
