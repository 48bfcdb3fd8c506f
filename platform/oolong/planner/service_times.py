"""Service times of a model on a device: from the data sheet of a GPU, or fitted to what runs measured.

A data sheet gives bounds; what a system reaches of them is assumed once, below, and shown with every result. The
sensitivity table says what a wrong assumption would change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from oolong.planner.types import ServiceTimes

FLOPS_PER_TOKEN_FORWARD = 2.0  # times the parameters
FLOPS_PER_TOKEN_TRAINED = 8.0  # proximal forward pass, forward and backward
# Shares of the data sheet's peak that serving and training reach. Training: 427 of 989 TFLOP/s for a model of 1B
# (dynamic batching, arXiv 2505.24298, section 7.4). Decoding reads weights and KV cache at 70 % of the bandwidth.
TRAIN_EFFICIENCY = 0.4
PREFILL_EFFICIENCY = 0.4
DECODE_FLOPS_EFFICIENCY = 0.5
BANDWIDTH_EFFICIENCY = 0.7
STEP_OVERHEAD_SECONDS = (
    4e-3  # of a decode step: launch, scheduling, sampling (1.5B on an A100 takes 5.5 ms alone)
)
TRAIN_STEP_SECONDS = 2.0  # batch to ranks, optimizer, metrics
PUBLISH_SECONDS_PER_GB = 1.2  # gather, write and hash of published weights (docs/decisions/0053)
LOAD_SECONDS_PER_GB = 0.35  # read from a local drive at 3 GB/s
MIN_FITTED_POINTS = 3


@dataclass(frozen=True)
class Gpu:
    """Data sheet: dense bfloat16 peak without sparsity, and memory bandwidth."""

    name: str  # as it appears in the device name that the driver reports
    flops: float
    bandwidth: float  # bytes per second
    memory_gib: int


GPUS: tuple[Gpu, ...] = (
    Gpu("B200", 2_250e12, 8.0e12, 180),
    Gpu("H200", 989e12, 4.8e12, 141),
    Gpu("H100 PCIe", 756e12, 2.0e12, 80),
    Gpu("H100", 989e12, 3.35e12, 80),
    Gpu("H800", 989e12, 3.35e12, 80),
    Gpu("A100", 312e12, 2.0e12, 80),
    Gpu("L40S", 362e12, 0.864e12, 48),
    Gpu("A6000", 155e12, 0.768e12, 48),
    Gpu("A10", 125e12, 0.6e12, 24),
    Gpu("L4", 121e12, 0.3e12, 24),
    Gpu("4090", 165e12, 1.008e12, 24),
    Gpu("3090", 71e12, 0.936e12, 24),
)


def gpu_named(text: str) -> Gpu | None:
    """The data sheet for a device name such as `NVIDIA H100 80GB HBM3`; None for an unknown device."""
    words = text.casefold().replace("-", " ").split()
    for gpu in GPUS:
        if all(
            any(word == part or word.endswith(part) for word in words) for part in gpu.name.casefold().split()
        ):
            return gpu
    return None


@dataclass(frozen=True)
class ModelSize:
    parameters: int
    kv_bytes_per_token: int
    weight_bytes: int  # as published and served


def from_data_sheet(gpu: Gpu, model: ModelSize) -> ServiceTimes:
    """Service times of one GPU that holds the whole model."""
    forward = FLOPS_PER_TOKEN_FORWARD * model.parameters
    bandwidth = BANDWIDTH_EFFICIENCY * gpu.bandwidth
    gigabytes = model.weight_bytes / 1e9
    return ServiceTimes(
        decode_step=STEP_OVERHEAD_SECONDS + model.weight_bytes / bandwidth,
        decode_sequence=forward / (DECODE_FLOPS_EFFICIENCY * gpu.flops),
        decode_context=model.kv_bytes_per_token / bandwidth,
        prefill_token=forward / (PREFILL_EFFICIENCY * gpu.flops),
        train_token=FLOPS_PER_TOKEN_TRAINED * model.parameters / (TRAIN_EFFICIENCY * gpu.flops),
        train_step=TRAIN_STEP_SECONDS,
        publish=PUBLISH_SECONDS_PER_GB * gigabytes,
        load=LOAD_SECONDS_PER_GB * gigabytes,
    )


@dataclass(frozen=True, kw_only=True)
class MeasuredTimes:
    """What one finished run measured. Means over its steps; engines give pairs over time."""

    engine_rates: Sequence[
        tuple[float, float]
    ]  # running requests of an engine, and the tokens it generated a second
    train_device_seconds_per_token: (
        float  # proximal and training passes of all ranks, over the tokens of the step
    )
    train_step_seconds: float  # prepare: whatever the size of the batch
    publish_seconds: float
    load_seconds: float


def from_measurements(runs: Sequence[MeasuredTimes]) -> ServiceTimes | None:
    """Service times fitted to earlier runs; None where none of them has engine rates.

    The time of a decode step is fitted as a line over the running requests. Prefill and context are part of what was
    measured, so they are not charged again.
    """
    rates = [(batch, rate) for run in runs for batch, rate in run.engine_rates if batch >= 1 and rate > 0]
    if len(rates) < MIN_FITTED_POINTS:
        return None
    step, sequence = _line([(batch, batch / rate) for batch, rate in rates])
    return ServiceTimes(
        decode_step=step,
        decode_sequence=sequence,
        decode_context=0.0,
        prefill_token=0.0,
        train_token=fmean(run.train_device_seconds_per_token for run in runs),
        train_step=fmean(run.train_step_seconds for run in runs),
        publish=fmean(run.publish_seconds for run in runs),
        load=fmean(run.load_seconds for run in runs),
    )


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least squares y = a + b·x with a, b ≥ 0: where one would be negative, the other alone explains the points."""
    x_mean, y_mean = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - x_mean) ** 2 for x, _ in points)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in points) / spread if spread > 0 else 0.0
    if slope <= 0:
        return y_mean, 0.0
    if slope * x_mean > y_mean:
        return 0.0, y_mean / x_mean
    return y_mean - slope * x_mean, slope


def scaled(times: ServiceTimes, name: str, factor: float) -> ServiceTimes:
    """The times with one group of them changed: `decode`, `train` or `sync`."""
    fields = {
        "decode": ("decode_step", "decode_sequence", "decode_context"),
        "train": ("train_token", "train_step"),
        "sync": ("publish", "load"),
    }[name]
    return replace(times, **{field: factor * getattr(times, field) for field in fields})
