"""Selects the files of a hub repository that form a usable model: safetensors weights, config, tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
INDEX_FILE = "model.safetensors.index.json"
SMALL_FILES = frozenset(
    {
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json", INDEX_FILE,
    }
)  # fmt: skip
MAX_FILES = 2_000
MAX_BYTES = 256 * 1024**3


class ImportRejected(Exception):
    """The model cannot be downloaded or used. The message is shown to the user."""


@dataclass(frozen=True)
class HubFile:
    name: str
    bytes: int
    sha256: str  # of an LFS file; "" if the file is stored in git
    git_sha1: str  # of a git blob; "" for an LFS file


def parse_file_list(siblings: Sequence[Mapping[str, Any]]) -> list[HubFile]:
    """Parse the hub's list of files. Raises ImportRejected if it is malformed."""
    try:
        return [
            HubFile(
                name=str(entry["rfilename"]),
                bytes=int((entry.get("lfs") or entry)["size"]),
                sha256=str((entry.get("lfs") or {}).get("sha256", "")).lower(),
                git_sha1="" if entry.get("lfs") else str(entry.get("blobId", "")),
            )
            for entry in siblings
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ImportRejected(f"the hub's list of files is malformed: {error!r}") from error


def select_small_files(files: Sequence[HubFile]) -> list[HubFile]:
    """Select config, tokenizer and index. Raises ImportRejected if the files do not form a usable model."""
    names = {file.name for file in files}
    if not any(_is_weights(name) for name in names):
        pickled = sorted(name for name in names if name.endswith(PICKLE_SUFFIXES))
        why = f"; it has {pickled[0]}, which can execute code when loaded" if pickled else ""
        raise ImportRejected(
            f"the model has no *.safetensors weights{why}. Convert it to safetensors, or choose another model"
        )
    for name in ("config.json", "tokenizer.json"):
        if name not in names:
            raise ImportRejected(f"the model has no {name}")
    return [file for file in files if file.name in SMALL_FILES]


def check_config(text: bytes) -> None:
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ImportRejected(f"config.json is not JSON: {error}") from error
    if not isinstance(config, dict) or not config.get("model_type"):
        raise ImportRejected("config.json has no model_type")
    if "auto_map" in config:
        raise ImportRejected(
            "config.json has auto_map: the model requires custom code, which is not supported"
        )


def select_weight_files(files: Sequence[HubFile], index: bytes | None) -> list[HubFile]:
    """Select the shards in the index, or the only weights file."""
    by_name = {file.name: file for file in files if _is_weights(file.name)}
    if index is None:
        if "model.safetensors" in by_name:
            return [by_name["model.safetensors"]]
        if len(by_name) == 1:
            return list(by_name.values())
        raise ImportRejected(f"the model has {len(by_name)} weights files but no {INDEX_FILE}")
    try:
        named = sorted({str(name) for name in json.loads(index)["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ImportRejected(f"{INDEX_FILE} is malformed: {error!r}") from error
    if missing := [name for name in named if name not in by_name]:
        raise ImportRejected(f"{INDEX_FILE} lists {missing[0]}, which does not exist")
    return [by_name[name] for name in named]


def check_limits(files: Sequence[HubFile]) -> None:
    total = sum(file.bytes for file in files)
    if len(files) > MAX_FILES or total > MAX_BYTES:
        raise ImportRejected(
            f"{len(files)} files with {total} bytes exceed the limits of {MAX_FILES} files and {MAX_BYTES} bytes"
        )


def _is_weights(name: str) -> bool:
    return name.endswith(".safetensors") and "/" not in name
