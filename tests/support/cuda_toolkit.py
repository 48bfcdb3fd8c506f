"""A folder that looks like a CUDA toolkit."""

from __future__ import annotations

from pathlib import Path


def make_toolkit(folder: Path) -> Path:
    for name in ("bin/nvcc", "include/cuda_runtime.h", "lib64/libcudart.so"):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o755)
    return folder
