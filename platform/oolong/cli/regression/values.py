"""Read the checked values from a run's metrics and its summary."""

from __future__ import annotations

from collections.abc import Sequence

from oolong.cli.regression.noise import Measured
from oolong.client import Client
from oolong.client.models import Run, Series
from oolong.contracts.assertions import Assertion

PAGE_POINTS = 10_000


def measured(client: Client, run: Run, assertion: Assertion) -> float | None:
    """What the assertion is about; None when the run has no such value."""
    if assertion.name.startswith("summary."):
        return summary_value(run, assertion.name.removeprefix("summary.").split("."))
    wanted = 1 if assertion.aggregate == "last" and assertion.window is None else assertion.window
    values = newest_points(client, run.id, assertion.name, wanted)
    return assertion.of(values) if values else None


def with_interval(client: Client, run: Run, name: str, *, step: int | None = None) -> Measured | None:
    """A metric with its 95 % interval where it was measured as well (`<name>_low`, `<name>_high`).

    Its last value, or with `step` the one of that train step.
    """
    value, low, high = (_value(client, run, metric, step) for metric in (name, f"{name}_low", f"{name}_high"))
    return None if value is None else Measured(value, low, high)


def _value(client: Client, run: Run, name: str, step: int | None) -> float | None:
    if step is None:
        return client.runs.last_value(run.id, name)
    for found in client.runs.metric_names(run.id):
        if found.name == name and found.axis == "step":
            points = _points(client, run.id, name, found.axis, after_x=step - 1, to_x=step)
            return points[-1] if points else None
    return None


def newest_points(client: Client, run_id: str, name: str, count: int | None) -> list[float]:
    """The last `count` points of a metric, all when None, oldest first.

    Where an attempt went over the same steps again the newest one's points count; where several sources measured
    the same point, their mean.
    """
    for found in client.runs.metric_names(run_id):
        if found.name != name or found.last_x is None:
            continue
        if count is not None:  # most metrics have a point for each step
            points = _points(client, run_id, name, found.axis, after_x=found.last_x - count)
            if len(points) >= count:
                return points[-count:]
        points = _points(client, run_id, name, found.axis, after_x=None)
        return points if count is None else points[-count:]
    return []


def summary_value(run: Run, path: list[str]) -> float | None:
    value: object = run.summary
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _points(
    client: Client, run_id: str, name: str, axis: str, *, after_x: int | None, to_x: int | None = None
) -> list[float]:
    every: list[Series] = []
    while True:
        answer = client.runs.metrics(run_id, [name], axis=axis, after_x=after_x, to_x=to_x, limit=PAGE_POINTS)
        every += answer.series
        cut = [series.x[-1] for series in answer.series if len(series.x) == PAGE_POINTS]
        if not cut:
            return _joined(every)
        after_x = int(min(cut))


def _joined(every: Sequence[Series]) -> list[float]:
    """Oldest first; what is not finite is left out."""
    attempts: dict[float, int] = {}
    for series in every:
        for x in series.x:
            attempts[x] = max(attempts.get(x, 0), series.attempt)
    sources: dict[float, dict[str, float]] = {}
    for series in every:
        for x, value in zip(series.x, series.value, strict=True):
            if value is not None and attempts[x] == series.attempt:
                sources.setdefault(x, {})[series.source] = value
    return [sum(found.values()) / len(found) for _, found in sorted(sources.items())]
