"""What the planner simulates, and what it finds. All times are seconds, all lengths tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OnStraggler = Literal["keep", "wait"]


@dataclass(frozen=True, kw_only=True)
class ServiceTimes:
    """What one engine and one trainer device cost. A decode step of a batch takes

    `decode_step + decode_sequence · sequences + decode_context · tokens in the KV cache`.
    """

    decode_step: float
    decode_sequence: float
    decode_context: float
    prefill_token: float
    train_token: float  # proximal pass, forward and backward, of one trainer device
    train_step: float  # of a train step, whatever its size
    publish: float  # the trainer waits while weights are published
    load: float  # an engine pauses while it loads them


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Completion lengths: lognormal with this mean, cut at `limit`."""

    mean: float  # after the cut
    spread: float = 0.75  # standard deviation of the logarithm
    limit: int
    prompt: int


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How devices and the algorithm divide the work. `alternating`: the same devices generate, then train."""

    engines: int
    trainer_devices: int  # that train; with `alternating`, the same devices as the engines'
    group_size: int
    groups_per_step: int
    max_staleness: int
    max_running: int  # requests that an engine decodes at once
    max_concurrent_groups: int | None = None
    on_straggler: OnStraggler = "keep"
    interruptible: bool = True
    alternating: bool = False

    @property
    def devices(self) -> int:
        return self.engines if self.alternating else self.engines + self.trainer_devices


@dataclass(frozen=True, kw_only=True)
class Performance:
    """Means over the simulated train steps after the warm-up."""

    step_seconds: float
    trained_tokens_per_second: float  # completion tokens
    trainer_idle_frac: float  # of the wall time, waiting for a batch
    rollout_idle_frac: float  # of the wall time, an engine has no request
    publish_frac: float
    paused_frac: float  # engines load weights and prefill what they interrupted
    staleness_mean: float  # of trajectories, in versions
    staleness_p95: float
    staleness_max: int
