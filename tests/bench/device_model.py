"""What an emulated device costs: the time of a decode step, a prefill, a token of training, a weight transfer.

The policy has the shape of Qwen2.5-1.5B (the paper's smallest model), the device that of an H800. The cost of a decode
step is set so that the **synchronous baseline** takes what the paper's takes; what the asynchronous arm then takes is
a prediction. Other constants lie about the geometric middle of their published bounds. All times are emulated
seconds; `real_seconds_per_second` turns them into real ones. One token that the emulated engine emits stands for
`tokens_per_emitted` tokens of the model.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oolong.planner.lengths import cut_lognormal_location

PARAMETERS = 1.54e9
KV_BYTES_PER_TOKEN = 28 * 2 * 2 * 128 * 2  # layers, key and value, kv heads, head size, bytes: 28,672
HBM_BYTES_PER_SECOND = 3.35e12
PEAK_FLOPS = 989e12  # bf16, dense

# What the trainer does with published weights besides the drive's work, one after the other
# (trainers.rl.weight_publisher, trainers.models.hf_export). Seconds a GB of bf16 for 400 million parameters on two
# cores of an Intel Xeon, best of 5: 2026-11-23. The emulated trainer publishes a tiny model and is charged the drive
# alone, so the measure adds them.
SERIAL_PUBLISH_SECONDS_PER_GB: Mapping[str, float] = {
    "cast_and_copy": 0.37,
    "write_to_page_cache": 0.35,
    "sha256_on_two_cores": 0.44,
}
PUBLISHED_GB = 2 * PARAMETERS / 1e9

SOURCES: Mapping[str, str] = {
    "shape": "Qwen2.5-1.5B config: 28 layers, 2 key-value heads of 128, 1.54e9 parameters",
    "device": "NVIDIA H100 SXM data sheet (H800: the same memory and peak): 3.35 TB/s, 989 TFLOP/s bf16 dense",
    "step_seconds": "16.5 ms: then a synchronous train step of 64 trajectories a device takes about the 590 s of arXiv "
    "2505.24298, table 1 (41.0 h for 250 steps of 8,192 trajectories on 128 GPUs); it stands for the whole serving "
    "stack of that system. A stack without load does it in 5.5 ms (Qwen2.5 speed benchmark: Qwen2.5-1.5B, vLLM "
    "0.6.3, A100, one stream, 183.33 tokens/s); the sensitivity table has that too",
    "context_token_seconds": "28,672 bytes of KV cache a token, between 80 % of the memory bandwidth and the 38 % "
    "that the same benchmark shows at one stream (183.33 tokens/s at 1 input token, 152.04 at 30,720)",
    "sequence_seconds": "2 x 1.54e9 FLOP a token at half of the peak",
    "prefill_token_seconds": "2 x 1.54e9 FLOP a token at 40 % of the peak",
    "train_token_seconds": "between 35 us (8 x 1.54e9 FLOP and attention at 427.4 TFLOP/s, arXiv 2505.24298, dynamic "
    "batching of the 1B model) and 80 us (32 of 128 GPUs train, 396.8k tokens/s at unbounded staleness, figure 5c)",
    "transfer": "3.1e9 bytes of bf16 weights at 3 GB/s to and from a local NVMe drive: an assumption",
    "lengths": "mean 9,300 tokens: 128.7k tokens/s (figure 5c, eta 0) x 41.0 h / 250 steps / 8,192 trajectories; "
    "356.6k x 14.8 h / 250 / 8,192 (eta 4) gives the same; limit 27,648 (table 3); spread: an assumption",
}


@dataclass(frozen=True, kw_only=True)
class DeviceModel:
    """step = step_seconds + sequence_seconds · batch + context_token_seconds · context, and the other costs."""

    step_seconds: float = 16.5e-3
    sequence_seconds: float = 6.2e-6
    context_token_seconds: float = 1.5e-8
    prefill_token_seconds: float = 7.8e-6
    train_token_seconds: float = 53e-6  # proximal pass, forward, backward, of one trainer device
    train_step_seconds: float = 2.0  # of a train step, whatever its size
    publish_seconds: float = 1.0  # gather and write of the weights
    load_seconds: float = 1.0  # an engine's load of them
    prompt_tokens: int = 256
    tokens_per_emitted: int = 256
    real_seconds_per_second: float = 1 / 32

    def decode_seconds(self, *, steps: int, batch: int, context: int) -> float:
        """`steps` decode steps of `batch` sequences with `context` tokens in the KV cache, all together."""
        one = (
            self.step_seconds + self.sequence_seconds * batch + self.context_token_seconds * context
        )  # fmt: skip
        return steps * one

    def prefill_seconds(self, tokens: int) -> float:
        return self.prefill_token_seconds * tokens

    def train_seconds(self, *, completion_tokens: int, trajectories: int, devices: int) -> float:
        """Of a batch, `completion_tokens` as emitted, on `devices` devices without a loss to communication."""
        tokens = completion_tokens * self.tokens_per_emitted + trajectories * self.prompt_tokens
        return self.train_step_seconds + self.train_token_seconds * tokens / devices

    def real(self, seconds: float) -> float:
        return seconds * self.real_seconds_per_second


def with_serial_publishing(share: float, *, seconds_per_step: float) -> float:
    """A share of a step's time that went into publishing, with what the emulation leaves out of both."""
    added = PUBLISHED_GB * sum(SERIAL_PUBLISH_SECONDS_PER_GB.values())
    return (share * seconds_per_step + added) / (seconds_per_step + added)


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Completion lengths: lognormal, cut at `limit`, in tokens of the model. Equal arguments give equal lengths."""

    mean: float = 9_300.0  # after the cut
    sigma: float = 0.75
    limit: int = 27_648
    seed: int = 1

    def of(self, prompt: tuple[int, ...], member: int) -> int:
        """Length of the member-th completion of a prompt, whoever generates it and when."""
        draw = random.Random(f"{self.seed}/{prompt}/{member}").gauss(0.0, 1.0)
        return max(1, min(self.limit, round(math.exp(self.location + self.sigma * draw))))

    @property
    def location(self) -> float:
        """μ of the lognormal whose mean, cut at the limit, is `mean`."""
        return cut_lognormal_location(self.mean, spread=self.sigma, limit=self.limit)


@dataclass(frozen=True, kw_only=True)
class Emulation:
    """What the emulated engines and the emulated trainer of one attempt read at their door."""

    device: DeviceModel
    lengths: Lengths
    trainer_devices: int
    colocated: bool  # trainer and engines are the same devices in turn: no weights travel

    def write(self, attempt_directory: Path) -> None:
        (attempt_directory / FILE).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, attempt_directory: Path) -> Emulation:
        found: dict[str, Any] = json.loads((attempt_directory / FILE).read_text())
        found["device"] = DeviceModel(**found["device"])
        found["lengths"] = Lengths(**found["lengths"])
        return cls(**found)

    @property
    def publish_seconds(self) -> float:
        return 0.0 if self.colocated else self.device.publish_seconds

    @property
    def load_seconds(self) -> float:
        return 0.0 if self.colocated else self.device.load_seconds


FILE = "emulation.json"
