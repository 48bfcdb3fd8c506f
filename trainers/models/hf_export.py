"""Export of weights as a Hugging Face model directory that transformers and SGLang load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from oolong.merging.folders import WEIGHTS_FILE as WEIGHTS_FILE
from oolong.merging.folders import is_auxiliary

MANIFEST_FILE = "manifest.json"


def auxiliary_files(model_directory: Path) -> list[Path]:
    """Config, tokenizer and chat template: every file of a model directory except its weights."""
    return sorted(path for path in model_directory.iterdir() if path.is_file() and is_auxiliary(path.name))


def write_weights(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Write one safetensors file, straight from the tensors' memory. It is not fsynced."""
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors makes it readable by this user only, but engines may be another


def tensor_index(tensors: dict[str, torch.Tensor], *, file: str) -> list[dict[str, Any]]:
    """Name, shape, dtype and file of each tensor, for a manifest."""
    dtypes = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
    return [
        {"name": name, "shape": list(tensor.shape), "dtype": dtypes[tensor.dtype], "file": file}
        for name, tensor in sorted(tensors.items())
    ]
