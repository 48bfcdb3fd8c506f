"""Settings of one worker, read once at start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gpu_agents.rollout.engines.client import PauseMode
from gpu_agents.rollout.worker.concurrency import WindowLimits


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    worker_id: str  # rollout-0/2: job name / incarnation
    group_size: int
    temperature: float
    window: WindowLimits  # bounds of the number of rollouts in the engine
    interruptible: bool
    reward_scale: float
    reward_bias: float
    reward_timeout_seconds: float
    pause_mode: PauseMode = "retract"
    adapters: bool = False  # versions are LoRA adapters
    # Negative controls, set by tests only, like the pause mode in_place: without the cache flush, tokens are sampled
    # from a stale KV cache.
    skip_loads: bool = False  # keep sampling from the first version and report newer ones as loaded

    @property
    def loads_between_requests(self) -> bool:
        """Whether weights load only while no request runs: after draining the requests, or after aborting them."""
        return not self.interruptible or self.pause_mode == "abort" or self.adapters

    @property
    def flush_cache(self) -> bool:
        return self.pause_mode != "in_place"


def read_test_overrides(
    environment: Mapping[str, str], *, interruption: Literal["retract", "abort"]
) -> tuple[PauseMode, bool]:
    """Return (pause mode, skip loads): the spec's values, unless a test overrides them in the environment."""
    mode = environment.get("OOLONG_TEST_PAUSE_MODE", interruption)
    if mode not in ("retract", "abort", "in_place"):
        raise ValueError(f"OOLONG_TEST_PAUSE_MODE={mode!r} is not one of retract, abort, in_place")
    return mode, environment.get("OOLONG_TEST_DISABLE_WEIGHT_LOADS") == "1"  # type: ignore[return-value]
