"""What publishing a version costs the trainer: `python -m tests.bench.weight_publish` with torch.

The weights of a model of 10 and of 100 million parameters, bfloat16, on one rank: gathered, written, hashed, renamed.
The baseline is how versions were published before: each whole tensor copied from float32 into fresh memory, all of them
serialized into one object, which is written, fsynced and hashed by one thread.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KEY = "publish_blocked_seconds_per_gb"
# Width and layers; the vocabulary is 8,192 and the head is tied.
SIZES: dict[str, dict[str, int]] = {
    "10M": {"hidden_size": 320, "intermediate_size": 960, "num_hidden_layers": 6},
    "100M": {"hidden_size": 768, "intermediate_size": 2304, "num_hidden_layers": 13},
}
REPEATS = 5


def measure() -> dict[str, Any]:
    import torch

    from trainers.distributed.context import init_distributed, shutdown_distributed

    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    torch.manual_seed(1)
    context = init_distributed("cpu")
    with tempfile.TemporaryDirectory() as directory:
        by_size = {
            name: _measure_size(Path(directory) / name, shape, context) for name, shape in SIZES.items()
        }
    shutdown_distributed()
    largest = by_size["100M"]
    return {
        "key": KEY,
        "value": largest["blocked_seconds_per_gb"],
        "unit": "s/GB",
        "baseline": f"fresh copies, one serialized object, fsync, one sha256: "
        f"{largest['before_blocked_seconds_per_gb']:.2f} s/GB",
        "settings": {
            "by_size": by_size, "dtype": "bfloat16", "ranks": 1, "threads": 1, "repeats": REPEATS,
            "statistic": "median, after one publish that allocates",
        },
    }  # fmt: skip


def _measure_size(directory: Path, shape: dict[str, int], context: Any) -> dict[str, Any]:
    import torch

    from oolong.contracts.run_spec import TrainerSection
    from trainers.distributed.fsdp import apply_fsdp, gather_full_tensors
    from trainers.models.policy import uninitialized_policy
    from trainers.models.tiny import tiny_config
    from trainers.rl.weight_publisher import WeightPublisher

    model = directory / "model"
    tiny_config(
        "qwen3", vocab_size=8192, num_attention_heads=8, num_key_value_heads=2, **shape
    ).save_pretrained(model)
    policy = apply_fsdp(uninitialized_policy(model), context.mesh, TrainerSection())
    parameters = sum(parameter.numel() for parameter in policy.parameters())
    gigabytes = 2 * parameters / 1e9
    publisher = WeightPublisher(directory / "weights", model)
    tensors: dict[str, torch.Tensor] = {}

    def gather() -> None:
        gather_full_tensors(policy, dtype=torch.bfloat16, keep=True, into=tensors)

    def write() -> None:
        publisher.write(0, tensors)

    before = _median({"all": lambda: _publish_as_before(policy, directory / "before")})
    now = _median({"gather": gather, "write_and_hash": write})
    return {
        "parameters": parameters,
        "gigabytes": round(gigabytes, 4),
        "blocked_seconds_per_gb": sum(now.values()) / gigabytes,
        "total_seconds_per_gb": sum(now.values()) / gigabytes,
        "parts_seconds_per_gb": {name: seconds / gigabytes for name, seconds in now.items()},
        "before_blocked_seconds_per_gb": before["all"] / gigabytes,
    }


def _publish_as_before(policy: Any, directory: Path) -> None:
    import torch
    from safetensors.torch import save

    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    tensors = {
        name: parameter.detach().full_tensor().to(device="cpu", dtype=torch.bfloat16, copy=True).contiguous()
        for name, parameter in policy.causal_lm.named_parameters()
    }
    data = save(tensors, metadata={"format": "pt"})
    with (directory / "model.safetensors").open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    hashlib.sha256(data).hexdigest()


def _median(parts: dict[str, Callable[[], None]]) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(REPEATS + 1):
        for name, part in parts.items():
            began = time.perf_counter()
            part()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
