"""Reward of many runs at a glance: a few points of each, for a list of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from control_plane.accounts.identity.caller import Caller
from control_plane.runs import selectors
from control_plane.telemetry.models import MetricSeries
from control_plane.telemetry.query.series_read import (
    HIGHEST,
    LOWEST,
    Line,
    Piece,
    bucket_width,
    read_buckets,
    read_points,
    series_extents,
)

METRIC = "reward/mean"
MAX_RUNS = 100
MAX_POINTS = 40


@dataclass
class _Bucket:
    """Points of a run within one width of steps."""

    x: int  # step of the newest point
    total: float = 0.0
    finite: int = 0


@dataclass
class _Curve:
    """The reward of one run: its pieces, a later attempt cutting off the steps that it repeats."""

    pieces: list[Piece] = field(default_factory=list)
    width: int = 1  # steps in a bucket; 1: single points


def rewards(caller: Caller, run_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Mean reward by train step of each run that the caller sees, at most MAX_POINTS points, in the order given.

    The number of statements does not depend on the number of runs. Runs that do not exist and runs of other projects
    are left out alike; a run without rewards has no points.
    """
    visible = set(selectors.runs(caller).filter(pk__in=run_ids).values_list("pk", flat=True))
    curves = _curves(visible)
    single = [piece for curve in curves.values() if curve.width == 1 for piece in curve.pieces]
    wide = [(piece, curve.width) for curve in curves.values() if curve.width > 1 for piece in curve.pieces]
    lines = read_points(single, limit=MAX_POINTS) | read_buckets(wide)
    shown = []
    for run_id in dict.fromkeys(run_ids):
        if run_id not in visible:
            continue
        curve = curves.get(run_id, _Curve())
        buckets = _merged((lines[piece.series_id] for piece in curve.pieces), curve.width)
        value = [bucket.total / bucket.finite if bucket.finite else None for bucket in buckets]
        shown.append({"run_id": run_id, "step": [bucket.x for bucket in buckets], "reward": value})
    return shown


def _curves(run_ids: Iterable[str]) -> dict[str, _Curve]:
    rows = (
        MetricSeries.objects.filter(run_id__in=run_ids, name=METRIC, axis="step")
        .order_by("run_id", "-attempt__number", "-pk")
        .values_list("run_id", "pk", "rolled_to")
    )
    series: defaultdict[str, list[tuple[int, int | None]]] = defaultdict(list)
    for run_id, key, rolled_to in rows:
        series[run_id].append((key, rolled_to))
    every = [Piece(key, LOWEST, HIGHEST, rolled_to) for found in series.values() for key, rolled_to in found]
    extents = series_extents(every, most=MAX_POINTS)
    curves = {}
    for run_id, found in series.items():
        curve, ends, points = _Curve(), HIGHEST, 0
        for key, rolled_to in found:  # newest attempt first
            extent = extents.get(key)
            if extent is None or extent.first > ends:
                continue
            curve.pieces.insert(0, Piece(key, extent.first, min(extent.last, ends), rolled_to))
            points += extent.points
            ends = extent.first - 1
        if not curve.pieces:
            continue
        if points > MAX_POINTS:
            first, last = curve.pieces[0].first, curve.pieces[-1].last
            curve = replace(curve, width=bucket_width(first, last, most=MAX_POINTS))
        curves[run_id] = curve
    return curves


def _merged(lines: Iterable[Line], width: int) -> list[_Bucket]:
    """Buckets ascending in x. Two attempts may share the bucket in which the second begins."""
    buckets: dict[int, _Bucket] = {}
    for line in lines:
        counts = line.count or [1] * len(line.x)
        lost = line.nonfinite or [int(value is None) for value in line.value]
        for x, value, count, bad in zip(line.x, line.value, counts, lost, strict=True):
            bucket = buckets.setdefault(x // width, _Bucket(x))
            bucket.x = x
            if value is not None:
                bucket.total += value * (count - bad)
                bucket.finite += count - bad
    return list(buckets.values())
