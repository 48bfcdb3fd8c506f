"""Which files of a hub's repository make a model that may be used: weights without code, config, tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
INDEX = "model.safetensors.index.json"
SMALL_FILES = frozenset(
    {
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json", INDEX,
    }
)  # fmt: skip
MOST_FILES = 2_000
MOST_BYTES = 256 * 1024**3


class HubRefused(Exception):
    """The model cannot be had or cannot be used; the message is for whoever asked for it."""


@dataclass(frozen=True)
class HubFile:
    name: str
    bytes: int
    sha256: str  # of a large file; "" when the hub keeps the file in git
    git_sha1: str  # of a git blob; "" for a large file


def files_of(siblings: Sequence[Mapping[str, Any]]) -> list[HubFile]:
    """The hub's list of files. Raises HubRefused for one that is not such a list."""
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
        raise HubRefused(f"the hub's list of files is malformed: {error!r}") from error


def small_files(files: Sequence[HubFile]) -> list[HubFile]:
    """Config, tokenizer and index. Raises HubRefused when a model cannot be made of these files."""
    names = {file.name for file in files}
    if not any(_is_weights(name) for name in names):
        pickled = sorted(name for name in names if name.endswith(PICKLED))
        why = f"; it has {pickled[0]}, which may run code when it is loaded" if pickled else ""
        raise HubRefused(
            f"the model has no *.safetensors weights{why}. Convert it to safetensors, or name another"
        )
    for name in ("config.json", "tokenizer.json"):
        if name not in names:
            raise HubRefused(f"the model has no {name}")
    return [file for file in files if file.name in SMALL_FILES]


def check_config(text: bytes) -> None:
    try:
        config = json.loads(text)
    except ValueError as error:
        raise HubRefused(f"config.json is not JSON: {error}") from error
    if not isinstance(config, dict) or not config.get("model_type"):
        raise HubRefused("config.json names no model_type")
    if "auto_map" in config:
        raise HubRefused("config.json has auto_map: the model needs code of its own, which is never run here")


def weight_files(files: Sequence[HubFile], index: bytes | None) -> list[HubFile]:
    """The shards that the index names, or the only file of weights."""
    by_name = {file.name: file for file in files if _is_weights(file.name)}
    if index is None:
        if "model.safetensors" in by_name:
            return [by_name["model.safetensors"]]
        if len(by_name) == 1:
            return list(by_name.values())
        raise HubRefused(
            f"the model has {len(by_name)} files of weights and no {INDEX} that says which belong to it"
        )
    try:
        named = sorted({str(name) for name in json.loads(index)["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HubRefused(f"{INDEX} is malformed: {error!r}") from error
    if missing := [name for name in named if name not in by_name]:
        raise HubRefused(f"{INDEX} names {missing[0]}, which is not there")
    return [by_name[name] for name in named]


def check_bounds(files: Sequence[HubFile]) -> None:
    total = sum(file.bytes for file in files)
    if len(files) > MOST_FILES or total > MOST_BYTES:
        raise HubRefused(f"{len(files)} files with {total} bytes; at most {MOST_FILES} and {MOST_BYTES}")


def _is_weights(name: str) -> bool:
    return name.endswith(".safetensors") and "/" not in name
