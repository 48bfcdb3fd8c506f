"""Time that a job spends by phase, computed from its metric points: pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from oolong.contracts.lifecycle import JobKind
from oolong.contracts.telemetry import Points

_PHASE_OF_METRIC = {
    "time/wait_batch_seconds": "waiting",
    "time/publish_seconds": "syncing",
    "time/prepare_seconds": "working",
    "time/proximal_seconds": "working",
    "time/reference_seconds": "working",
    "time/values_seconds": "working",
    "time/train_seconds": "working",
}
MAX_INTERVAL_SECONDS = 60.0  # the most time that one point of a worker covers
MAX_PHASE_SECONDS = 7 * 86400.0  # of one step


@dataclass(kw_only=True)
class SlotUsage:
    """Seconds of wall time of one job, which hold for each of its slots."""

    working: float = 0.0  # a trainer trains, a rollout worker generates, an evaluator evaluates
    waiting: float = 0.0
    syncing: float = 0.0
    measured_to: int | None = None  # of a rollout worker: x of its last point

    def __bool__(self) -> bool:
        return self.working + self.waiting + self.syncing > 0 or self.measured_to is not None


def slot_usage(kind: str, points: Iterable[Points], *, measured_to: int | None) -> SlotUsage:
    """The time that these points add. `measured_to` is the job's value so far."""
    usage = SlotUsage()
    for point in points:
        if kind == JobKind.TRAINER and point.axis == "step":
            for name, phase in _PHASE_OF_METRIC.items():
                seconds = min(max(0.0, point.values.get(name) or 0.0), MAX_PHASE_SECONDS)
                setattr(usage, phase, getattr(usage, phase) + seconds)
        elif kind == JobKind.ROLLOUT and point.axis == "time" and "evaluator/busy_seconds" in point.values:
            seconds = point.values["evaluator/busy_seconds"] or 0.0
            usage.working += min(max(0.0, seconds), MAX_PHASE_SECONDS)
        elif kind == JobKind.ROLLOUT and point.axis == "time" and "idle/rollout_frac" in point.values:
            since = usage.measured_to if usage.measured_to is not None else measured_to
            usage.measured_to = max(point.x, since or 0)
            if since is not None:
                _add_fractions(
                    usage, point.values, seconds=min(max(0, point.x - since), MAX_INTERVAL_SECONDS)
                )
    return usage


def _add_fractions(usage: SlotUsage, values: Any, *, seconds: float) -> None:
    syncing = min(max(values.get("weight_sync/engine_paused_frac") or 0.0, 0.0), 1.0)
    waiting = min(max(values["idle/rollout_frac"] or 0.0, 0.0), 1.0 - syncing)
    usage.syncing += seconds * syncing
    usage.waiting += seconds * waiting
    usage.working += seconds * (1.0 - syncing - waiting)
