"""A model of one layer as archives of the store, with adapters, and what merging gives. Needs no torch."""

from __future__ import annotations

import io
import json
import tarfile

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from tests.support.checkpoint_tars import pack_checkpoint

LAYER = "model.layers.0.self_attn.q_proj"
SHAPE, RANK, SCALE = (6, 4), 2, 2.0

Tensors = dict[str, NDArray[np.float32]]


def base_tensors() -> Tensors:
    random = np.random.default_rng(1)
    return {
        "model.embed_tokens.weight": random.normal(size=(5, 4)).astype(np.float32),
        f"{LAYER}.weight": random.normal(size=SHAPE).astype(np.float32),
    }


def factors(seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A and B."""
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(RANK, SHAPE[1])), random.normal(size=(SHAPE[0], RANK))
    return a.astype(np.float32), b.astype(np.float32)


def merged_tensors(*seeds: int) -> Tensors:
    tensors = base_tensors()
    for seed in seeds:
        a, b = factors(seed)
        tensors[f"{LAYER}.weight"] += b @ a * np.float32(SCALE)
    return tensors


def adapter_files(seed: int) -> dict[str, bytes]:
    a, b = factors(seed)
    prefix = f"base_model.model.{LAYER}"
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": SCALE * RANK}
    return {
        "adapter/adapter_config.json": json.dumps(config).encode(),
        "adapter/adapter_model.safetensors": save(
            {f"{prefix}.lora_A.weight": a, f"{prefix}.lora_B.weight": b}
        ),
        "adapter/base.json": b'{"dtype": "float32", "kind": "base_model", "id": "mdl_1", "sha256": "1"}',
    }


def adapter_tar(seed: int) -> bytes:
    return pack_checkpoint({**adapter_files(seed), "trainer.json": b"{}"})


def model_files() -> dict[str, bytes]:
    return {
        "config.json": b'{"model_type": "qwen3"}',
        "model.safetensors": save(base_tensors()),
        "tokenizer.json": b"{}",
    }


def model_tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in model_files().items():
            info = tarfile.TarInfo(f"tiny/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
