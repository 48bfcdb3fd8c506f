"""Weights as a Hugging Face directory that transformers and SGLang load."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import save

WEIGHTS_FILE = "model.safetensors"
MANIFEST_FILE = "manifest.json"
_NOT_COPIED = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".msgpack", ".h5", ".safetensors.index.json")


def companion_files(model_directory: Path) -> list[Path]:
    """Config, tokenizer and chat template: everything of a model directory but its weights."""
    return sorted(
        path
        for path in model_directory.iterdir()
        if path.is_file()
        and not path.name.startswith(".")
        and not path.name.endswith(_NOT_COPIED)
        and not path.name.endswith(".index.json")
        and path.name not in (MANIFEST_FILE, "README.md")
    )


def write_weights(tensors: dict[str, torch.Tensor], path: Path) -> str:
    """Write one safetensors file, fsynced; returns its sha256."""
    data = save(tensors, metadata={"format": "pt"})
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(data).hexdigest()


def link_or_copy(source: Path, target: Path) -> None:
    """A hard link where both are on one filesystem. Companion files are never changed in place."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def tensor_table(tensors: dict[str, torch.Tensor]) -> list[dict[str, Any]]:
    names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
    return [
        {"name": name, "shape": list(tensor.shape), "dtype": names[tensor.dtype], "file": WEIGHTS_FILE}
        for name, tensor in sorted(tensors.items())
    ]


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, value: Any) -> bytes:
    """Write canonical JSON, fsynced; returns the bytes."""
    data = msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1) + b"\n"
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return data


def exchange(one: Path, other: Path) -> None:
    """Swap two names in one step (renameat2 with RENAME_EXCHANGE); the standard library has no call for it."""
    library = ctypes.CDLL(None, use_errno=True)
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if library.renameat2(here, os.fsencode(one), here, os.fsencode(other), swap) != 0:
        raise OSError(ctypes.get_errno(), f"cannot exchange {one} and {other}")


def fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
