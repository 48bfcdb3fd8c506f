"""Settings of one worker, read once at the door."""

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
    window: WindowLimits  # of the members in the engine at once
    interruptible: bool
    reward_scale: float
    reward_bias: float
    reward_timeout_seconds: float
    pause_mode: PauseMode = "retract"
    # The negative controls of the tests; a run of a user never sets them, nor the pause mode in_place: it comes without
    # the flush, so that tokens are made from a stale KV cache.
    skip_loads: bool = False  # go on with the first version for ever, and say so to nobody

    @property
    def loads_between_requests(self) -> bool:
        """A load never happens inside a request: it waits for them, or takes them back first."""
        return not self.interruptible or self.pause_mode == "abort"

    @property
    def flush_cache(self) -> bool:
        return self.pause_mode != "in_place"


def read_test_overrides(
    environment: Mapping[str, str], *, interruption: Literal["retract", "abort"]
) -> tuple[PauseMode, bool]:
    """(pause mode, skip loads): the spec's, unless the job's environment says otherwise, which only tests do."""
    mode = environment.get("OOLONG_TEST_PAUSE_MODE", interruption)
    if mode not in ("retract", "abort", "in_place"):
        raise ValueError(f"OOLONG_TEST_PAUSE_MODE={mode!r} is not one of retract, abort, in_place")
    return mode, environment.get("OOLONG_TEST_DISABLE_WEIGHT_LOADS") == "1"  # type: ignore[return-value]
