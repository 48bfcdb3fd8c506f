"""What a job did with its slots' time, read from the points that it tells: pure, and summed up beside the job's row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from oolong.contracts.lifecycle import JobKind
from oolong.contracts.telemetry import Points

_OF_A_STEP = {
    "time/wait_batch_seconds": "waiting",
    "time/publish_seconds": "syncing",
    "time/prepare_seconds": "working",
    "time/proximal_seconds": "working",
    "time/reference_seconds": "working",
    "time/values_seconds": "working",
    "time/train_seconds": "working",
}
LONGEST_INTERVAL = 60.0  # seconds that a worker's shares stand for at most: after a gap nobody knows
LONGEST_PHASE = 7 * 86400.0  # of one step


@dataclass(kw_only=True)
class Spent:
    """Seconds of wall time of one job; its slots all spend them alike."""

    working: float = 0.0  # a trainer trains, a rollout worker generates, an evaluator evaluates
    waiting: float = 0.0
    syncing: float = 0.0
    measured_to: int | None = None  # of a rollout worker: the x that its last shares reach to

    def __bool__(self) -> bool:
        return self.working + self.waiting + self.syncing > 0 or self.measured_to is not None


def spent_by(kind: str, points: Iterable[Points], *, measured_to: int | None) -> Spent:
    """What the points add. `measured_to` is that of the job so far."""
    spent = Spent()
    for point in points:
        if kind == JobKind.TRAINER and point.axis == "step":
            for name, phase in _OF_A_STEP.items():
                seconds = min(max(0.0, point.values.get(name) or 0.0), LONGEST_PHASE)
                setattr(spent, phase, getattr(spent, phase) + seconds)
        elif kind == JobKind.ROLLOUT and point.axis == "time" and "evaluator/busy_seconds" in point.values:
            seconds = point.values["evaluator/busy_seconds"] or 0.0
            spent.working += min(max(0.0, seconds), LONGEST_PHASE)
        elif kind == JobKind.ROLLOUT and point.axis == "time" and "idle/rollout_frac" in point.values:
            since = spent.measured_to if spent.measured_to is not None else measured_to
            spent.measured_to = max(point.x, since or 0)
            if since is not None:
                _add_shares(spent, point.values, seconds=min(max(0, point.x - since), LONGEST_INTERVAL))
    return spent


def _add_shares(spent: Spent, values: Any, *, seconds: float) -> None:
    syncing = min(max(values.get("weight_sync/engine_paused_frac") or 0.0, 0.0), 1.0)
    waiting = min(max(values["idle/rollout_frac"] or 0.0, 0.0), 1.0 - syncing)
    spent.syncing += seconds * syncing
    spent.waiting += seconds * waiting
    spent.working += seconds * (1.0 - syncing - waiting)
