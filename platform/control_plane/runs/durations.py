"""Predicts how long runs take: from their own pace, from runs like them, and from their wall-time limit.

A prediction says where it comes from. What nothing is known of is unknown, not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from statistics import median, quantiles
from typing import Any

from control_plane.fleet.forecast import Duration
from control_plane.runs.models import Run, RunForecast
from control_plane.runs.pace import remaining
from oolong.contracts.lifecycle import ENDED, RunStatus

SAMPLE_SIZE = 20  # newest comparable runs of the project
POOL_SAMPLE_SIZE = 50  # newest runs of the kind in the pool
MIN_FOR_P90 = 5  # runs before they say anything about the slowest of ten
_SHAPE = (  # what two runs must share to be comparable
    ("rollout", "group_size"), ("rollout", "max_new_tokens"), ("rollout", "engines"), ("trainer", "num_ranks"),
    ("trainer", "groups_per_step"), ("trainer", "dtype"), ("workflow", "name"),
)  # fmt: skip
_WITHOUT_END = frozenset({"playground"})  # kinds that last as long as somebody uses them
_STOPPING = frozenset({RunStatus.STOPPING, RunStatus.PAUSING, RunStatus.FINALIZING, RunStatus.RECOVERING})
_TO_STOP = Duration(30.0, 180.0)  # a trainer saves within its grace period of 180 s (plan_jobs)


class Source(StrEnum):
    PROGRESS = "progress"
    LIKE_RUNS = "like_runs"
    POOL_HISTORY = "pool_history"
    WALL_LIMIT = "wall_limit"
    STOPPING = "stopping"
    UNKNOWN = "unknown"


SOURCES: dict[str, str] = {
    Source.PROGRESS: "the run's own pace",
    Source.LIKE_RUNS: "runs of the project with the same model and shape",
    Source.POOL_HISTORY: "runs of the same kind in the pool",
    Source.WALL_LIMIT: "an upper bound: budget.max_wall_seconds",
    Source.STOPPING: "it stops already",
    Source.UNKNOWN: "nothing is known",
}


@dataclass(frozen=True)
class Prediction:
    duration: Duration
    source: Source
    message: str  # one sentence


NOTHING_KNOWN = Prediction(
    Duration(), Source.UNKNOWN, "no run like it has ended yet, and it has no wall-time limit"
)


@dataclass
class Predictor:
    """Predictions at one moment. Each query for history is made once."""

    now: datetime
    _steps: dict[Any, list[float]] = field(default_factory=dict)
    _totals: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def of_active(self, run: Run, forecast: RunForecast | None) -> Prediction:
        """The time until an active run ends."""
        if run.status in _STOPPING:
            return Prediction(_TO_STOP, Source.STOPPING, f"it is {run.status}")
        elapsed = max(0.0, (self.now - (run.started_at or self.now)).total_seconds() - run.paused_seconds)
        found = self._by_pace(run, forecast) or self._by_history(run, elapsed=elapsed)
        return _bounded(found, _wall_limit(run), elapsed)

    def of_queued(self, run: Run) -> Prediction:
        """The time that a queued run, or one that is not saved, takes once it starts."""
        elapsed = 0.0
        if run.started_at is not None:
            elapsed = max(0.0, (run.status_at - run.started_at).total_seconds() - run.paused_seconds)
        return _bounded(self._by_history(run, elapsed=elapsed), _wall_limit(run), elapsed)

    def step_seconds(self, run: Run) -> list[float]:
        """Seconds per step of the project's newest comparable runs that succeeded."""
        key = (run.project_id, run.kind, run.base_model_id, *shape_of(run.spec))
        if key not in self._steps:
            self._steps[key] = _step_seconds(run)
        return self._steps[key]

    def _by_pace(self, run: Run, forecast: RunForecast | None) -> Prediction | None:
        work = progress_of(run)
        if forecast is None or work is None or forecast.measure != work.measure:
            return None
        found = remaining([(at, done) for at, done in forecast.samples], work.total, now=self.now.timestamp())
        if found is None:
            return None
        return Prediction(found, Source.PROGRESS, f"its pace over {work.done} of {work.total} {work.unit}")

    def _by_history(self, run: Run, *, elapsed: float) -> Prediction:
        if run.kind in _WITHOUT_END:
            return replace(NOTHING_KNOWN, message=f"a {run.kind} lasts as long as somebody uses it")
        steps = max(0, run.steps_planned - run.train_step)
        if steps and (per_step := self.step_seconds(run)):
            found = _quantiles([seconds * steps for seconds in per_step])
            return Prediction(found, Source.LIKE_RUNS, f"{_runs(len(per_step))} of the project like it")
        key = (run.pool, run.kind)
        if key not in self._totals:
            self._totals[key] = _totals(*key)
        left = [seconds - elapsed for seconds in self._totals[key] if seconds > elapsed]
        if len(left) < MIN_FOR_P90:
            return NOTHING_KNOWN
        message = f"{_runs(len(left))} of kind {run.kind} in pool {run.pool}"
        return Prediction(
            _quantiles(left), Source.POOL_HISTORY, message + (" that took longer so far" if elapsed else "")
        )


@dataclass(frozen=True)
class Work:
    """What a run counts while it advances."""

    measure: str  # samples of another measure are not comparable
    done: int
    total: int
    unit: str


def progress_of(run: Run) -> Work | None:
    """None for a run that does not say how much it has to do."""
    if run.total_train_steps:
        attempt = f"steps of attempt {run.attempt_number}"
        return Work(attempt, run.train_step, run.steps_planned, "steps") if run.train_step else None
    match run.progress:
        case {"phase": str(phase), "done": int(done), "total": int(total)} if total > 0:
            return Work(f"{phase} of attempt {run.attempt_number}", done, total, "samples")
    return None


def shape_of(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple((spec.get(section) or {}).get(name) for section, name in _SHAPE)


def _step_seconds(run: Run) -> list[float]:
    shape = dict(zip(_SHAPE, shape_of(run.spec), strict=True))
    alike = (
        Run.objects.filter(
            project=run.project_id, kind=run.kind, status=RunStatus.SUCCEEDED, base_model=run.base_model_id,
            started_at__isnull=False, ended_at__isnull=False, train_step__gt=0, attempt_number=1,
            **{f"spec__{section}__{name}": value for (section, name), value in shape.items() if value is not None},
        )
        .order_by("-pk")
        .values_list("started_at", "ended_at", "paused_seconds", "train_step")[:SAMPLE_SIZE]
    )  # fmt: skip
    return [
        ((ended - started).total_seconds() - paused) / steps
        for started, ended, paused, steps in alike
        if started is not None and ended is not None
    ]


def _totals(pool: str, kind: str) -> list[float]:
    """Seconds that the newest runs of the kind held slots of the pool, however they ended."""
    rows = (
        Run.objects.filter(
            kind=kind,
            spec__placement__pool=pool,
            status__in=ENDED,
            started_at__isnull=False,
            attempt_number=1,
        )
        .order_by("-pk")
        .values_list("started_at", "ended_at", "paused_seconds")[:POOL_SAMPLE_SIZE]
    )
    return [
        (ended - started).total_seconds() - paused
        for started, ended, paused in rows
        if started is not None and ended is not None
    ]


def _quantiles(seconds: Sequence[float]) -> Duration:
    if len(seconds) < MIN_FOR_P90:
        return Duration(median(seconds))
    return Duration(median(seconds), quantiles(seconds, n=10, method="inclusive")[8])


def _wall_limit(run: Run) -> float | None:
    limit = (run.spec.get("budget") or {}).get("max_wall_seconds")
    return None if limit is None else float(limit)


def _bounded(found: Prediction, limit: float | None, elapsed: float) -> Prediction:
    """The prediction within the wall-time limit, at which the run is stopped."""
    if limit is None:
        return found
    left = max(0.0, limit - elapsed)
    p50, p90 = found.duration.p50, found.duration.p90
    if p50 is None:
        return Prediction(Duration(None, left), Source.WALL_LIMIT, "at the latest, by its wall-time limit")
    return replace(found, duration=Duration(min(p50, left), left if p90 is None else min(p90, left)))


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
