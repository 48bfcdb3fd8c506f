"""What earlier runs of the same model measured: service times of their engines and trainer, and completion lengths."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from django.db.models import Q

from control_plane.accounts.identity.caller import Caller
from control_plane.assets.models import BaseModel
from control_plane.runs import selectors
from control_plane.runs.models import Run
from control_plane.telemetry.models import MetricSeries
from control_plane.telemetry.query.series_read import HIGHEST, LOWEST, Piece, read_points
from oolong.contracts.lifecycle import RunStatus
from oolong.contracts.run_spec import RunSpec
from oolong.planner.service_times import MeasuredTimes

MAX_RUNS = 5  # newest comparable runs
MIN_TRAIN_STEPS = 5
MAX_POINTS = 400  # of each series
FIRST_STEP = 2  # the first step warms up kernels and caches

_PASSES = ("time/proximal_seconds", "time/reference_seconds", "time/values_seconds", "time/train_seconds")
_STEP_METRICS = (*_PASSES, "packing/tokens", "time/prepare_seconds", "time/publish_seconds")
_ENGINE_METRICS = ("engine/running_requests", "perf/generated_tokens_per_second", "weight_sync/load_seconds")

_Points = Mapping[int, float]  # by x


@dataclass(frozen=True)
class MeasuredLengths:
    mean: float
    spread: float | None  # standard deviation of the logarithm


@dataclass(frozen=True)
class Measurements:
    """Of the project's newest runs of this model, pool and data type."""

    times: Sequence[MeasuredTimes]
    lengths: MeasuredLengths | None


def measure_comparable_runs(caller: Caller, spec: RunSpec, model: BaseModel | None) -> Measurements:
    """Runs of the model, or of a checkpoint that a run of it wrote."""
    if model is None:
        return Measurements([], None)
    trained_from_it = selectors.runs(caller).filter(base_model=model).values("pk")
    runs = list(
        selectors.runs(caller)
        .filter(
            Q(base_model=model) | Q(initial_checkpoint__run_id__in=trained_from_it),
            kind="rl", train_step__gte=MIN_TRAIN_STEPS,
            status__in=(RunStatus.SUCCEEDED, RunStatus.STOPPED, RunStatus.RUNNING),
            spec__placement__pool=spec.placement.pool, spec__trainer__dtype=spec.trainer.dtype,
        )
        .order_by("-pk")[:MAX_RUNS]
    )  # fmt: skip
    series = _read(runs)
    times = [found for run in runs if (found := _times_of(run, series[run.pk])) is not None]
    return Measurements(times, _lengths_of(runs))


def _lengths_of(runs: Sequence[Run]) -> MeasuredLengths | None:
    """Mean and spread at the last step; the coefficient of variation of a lognormal gives its spread."""
    means = [mean for run in runs if (mean := run.metrics.get("response_length/mean"))]
    variations = [cv for run in runs if (cv := run.metrics.get("response_length/cv"))]
    if not means:
        return None
    spread = math.sqrt(math.log(1 + fmean(variations) ** 2)) if variations else None
    return MeasuredLengths(fmean(means), spread)


def _times_of(run: Run, series: Sequence[tuple[str, str, _Points]]) -> MeasuredTimes | None:
    """None where the run did not record what the trainer needed."""
    steps = {name: points for name, _, points in series if name in _STEP_METRICS}
    tokens = {
        x: value for x, value in steps.get("packing/tokens", {}).items() if x >= FIRST_STEP and value > 0
    }
    if not tokens or "time/train_seconds" not in steps:
        return None
    ranks = int(run.spec["trainer"]["num_ranks"])
    passes = [sum(steps.get(name, {}).get(x, 0.0) for name in _PASSES) / count for x, count in tokens.items()]
    return MeasuredTimes(
        engine_rates=_engine_rates(series),
        train_device_seconds_per_token=ranks * fmean(passes),
        train_step_seconds=_mean(steps.get("time/prepare_seconds", {})),
        publish_seconds=_mean(steps.get("time/publish_seconds", {})),
        load_seconds=fmean(loads) if (loads := _values("weight_sync/load_seconds", series)) else 0.0,
    )


def _engine_rates(series: Sequence[tuple[str, str, _Points]]) -> list[tuple[float, float]]:
    """Running requests and generated tokens per second of each engine, at the moments that have both."""
    by_source: defaultdict[str, dict[str, _Points]] = defaultdict(dict)
    for name, source, points in series:
        by_source[source][name] = points
    return [
        (running, rate)
        for metrics in by_source.values()
        for x, running in metrics.get("engine/running_requests", {}).items()
        if (rate := metrics.get("perf/generated_tokens_per_second", {}).get(x)) is not None
    ]


def _mean(points: _Points) -> float:
    values = [value for x, value in points.items() if x >= FIRST_STEP]
    return fmean(values) if values else 0.0


def _values(name: str, series: Sequence[tuple[str, str, _Points]]) -> list[float]:
    return [value for found, _, points in series if found == name for value in points.values()]


def _read(runs: Sequence[Run]) -> defaultdict[str, list[tuple[str, str, _Points]]]:
    """Name, source and points of the wanted series of each run."""
    rows = MetricSeries.objects.filter(run__in=runs, name__in=(*_STEP_METRICS, *_ENGINE_METRICS)).values_list(
        "pk", "run_id", "name", "source", "rolled_to"
    )
    found = list(rows)
    lines = read_points(
        [Piece(key, LOWEST, HIGHEST, rolled_to) for key, *_, rolled_to in found], limit=MAX_POINTS
    )
    series: defaultdict[str, list[tuple[str, str, _Points]]] = defaultdict(list)
    for key, run_id, name, source, _ in found:
        line = lines[key]
        points = {x: value for x, value in zip(line.x, line.value, strict=True) if value is not None}
        series[run_id].append((name, source, points))
    return series
