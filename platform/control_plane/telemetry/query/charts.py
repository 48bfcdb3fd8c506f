"""Series of a run for a chart: by name and range, at a resolution, with attempts and ancestors joined."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal

from control_plane.checkpoints.models import Checkpoint
from control_plane.core.stream import event_stream
from control_plane.runs.models import Run
from control_plane.telemetry.models import MetricSeries
from control_plane.telemetry.query.series_read import (
    HIGHEST,
    LOWEST,
    Line,
    Piece,
    SeriesExtent,
    bucket_width,
    read_buckets,
    read_points,
    series_extents,
)
from oolong.contracts.metrics import find_metric

DEFAULT_POINTS = 2000  # a longer series is shown as at most so many buckets
MAX_POINTS = 20_000
MAX_ANCESTORS = 20

Join = Literal["", "attempts", "lineage"]
XAxis = Literal["", "version", "tokens", "wall"]
_REFERENCES = {"version": "policy/version", "tokens": "perf/trained_tokens"}


@dataclass(frozen=True, kw_only=True)
class ChartQuery:
    names: Sequence[str] = ()  # all when empty
    axis: str = "step"
    first: int = LOWEST
    last: int = HIGHEST
    limit: int | None = None  # the first so many points of each, single ones
    max_points: int = DEFAULT_POINTS
    attempt: int | None = None
    source: str = ""
    join: Join = ""
    x_axis: XAxis = ""


@dataclass(frozen=True)
class Ancestor:
    """A run whose steps a chart shows: its own step s is step s + offset there, and those beyond `last` are not
    of this line."""

    run_id: str
    offset: int = 0
    last: int = HIGHEST


@dataclass(frozen=True)
class ChartSegment:
    """A series of one attempt within a line of a chart. Its pieces are in its own steps."""

    series: MetricSeries
    piece: Piece
    extent: SeriesExtent
    offset: int = 0


def metrics(run: Run, wanted: ChartQuery) -> dict[str, Any]:
    """Series of a run, each point once, ascending in x.

    With `limit` the first so many points of the range, as they were written. Without it a series of more than
    `max_points` points comes as at most that many buckets: value is the mean of a bucket, x and at are those of
    its last point, beside min, max, last and counts. A value that was not finite is null, and no part of a mean.

    `join` joins what is one line to a reader: the attempts of a run (of steps done twice the later attempt's),
    or with `lineage` also the runs whose checkpoints it went on from, steps counted from the oldest of them.

    `seq` is the stream's position from before the read: subscribe after it and nothing is missed, though a point
    may come a second time.
    """
    seq = event_stream.current_seq(f"run:{run.pk}")
    ancestors = lineage(run) if wanted.join == "lineage" else [Ancestor(run.pk)]
    rows = MetricSeries.objects.filter(
        run_id__in=[found.run_id for found in ancestors], axis=wanted.axis
    ).select_related("attempt")
    if wanted.names:
        rows = rows.filter(name__in=wanted.names)
    if wanted.attempt is not None:
        rows = rows.filter(attempt__number=wanted.attempt)
    if wanted.source:
        rows = rows.filter(source=wanted.source)
    lines = _lines(list(rows), ancestors, wanted)
    shown = [
        (parts, line) for parts, line in zip(lines, _read(lines, wanted), strict=True) if line.x
    ]  # fmt: skip
    on = _x_axis_values(run, ancestors, wanted, [line for _, line in shown])
    return {
        "series": [
            _as_json(parts, line, x_axis, joined=bool(wanted.join))
            for (parts, line), x_axis in zip(shown, on, strict=True)
        ],
        "seq": seq,
    }


def lineage(run: Run) -> list[Ancestor]:
    """The run and those that its weights come from, oldest first. A retry keeps counting its parent's steps; a
    fork begins at 0, so it is moved behind the step of its checkpoint."""
    found = [Ancestor(run.pk)]
    child = run
    while len(found) <= MAX_ANCESTORS:
        begins_with: Checkpoint | None = child.resume_checkpoint or child.initial_checkpoint
        if begins_with is None:
            break
        parent = Run.objects.filter(project_id=run.project_id, pk=begins_with.run_id).first()
        if parent is None or any(parent.pk == known.run_id for known in found):
            break
        if child.resume_checkpoint is None:
            found = [replace(one, offset=one.offset + begins_with.step) for one in found]
        found.append(Ancestor(parent.pk, last=begins_with.step))
        child = parent
    return found[::-1]


def without_restart(source: str) -> str:
    """`rollout-0#2/engine` is rollout-0 after its second restart in place; its line continues the first's."""
    return re.sub(r"#\d+", "", source)


# --- lines of parts ---------------------------------------------------------------------------------------


def _lines(
    rows: list[MetricSeries], ancestors: list[Ancestor], wanted: ChartQuery
) -> list[list[ChartSegment]]:
    """Which series make up which line, in the order of names; later attempts have their steps to themselves."""
    generation = {found.run_id: number for number, found in enumerate(ancestors)}
    rows.sort(
        key=lambda row: (
            row.name,
            generation[row.run_id],
            row.attempt.number,
            _restart(row.source),
            row.source,
        )
    )
    pieces = {}
    for row in rows:
        own = ancestors[generation[row.run_id]]
        first = max(wanted.first - own.offset, LOWEST)
        pieces[row.pk] = Piece(row.pk, first, min(wanted.last - own.offset, own.last), row.rolled_to)
    found = series_extents(list(pieces.values()), most=wanted.max_points)
    groups: defaultdict[tuple[str, ...], list[ChartSegment]] = defaultdict(list)
    for row in rows:
        if extent := found.get(row.pk):
            key = (
                (row.name, without_restart(row.source))
                if wanted.join
                else (row.name, str(row.attempt.number), row.source)
            )
            offset = ancestors[generation[row.run_id]].offset
            groups[key].append(ChartSegment(row, pieces[row.pk], extent, offset))
    if not wanted.join:
        return list(groups.values())
    return [_without_overlap(parts, most=wanted.max_points) for parts in groups.values()]


def _without_overlap(parts: list[ChartSegment], *, most: int) -> list[ChartSegment]:
    ends = HIGHEST
    cut: list[ChartSegment] = []
    for part in reversed(parts):
        last = min(part.piece.last, ends - part.offset)
        if last < part.piece.last:
            part = replace(part, piece=replace(part.piece, last=last))
        cut.append(part)
        ends = min(ends, part.extent.first + part.offset - 1)
    again = series_extents([part.piece for part in cut], most=most)
    return [
        replace(part, extent=again[part.series.pk]) for part in reversed(cut) if part.series.pk in again
    ]  # fmt: skip


def _read(lines: list[list[ChartSegment]], wanted: ChartQuery) -> list[Line]:
    """Points of short lines, buckets of long ones; few statements for many lines."""
    single: list[Piece] = []
    buckets: list[tuple[Piece, int]] = []
    for parts in lines:
        if wanted.limit is not None:
            single += [part.piece for part in parts]
            continue
        inside = [
            replace(part.piece, first=part.extent.first, last=part.extent.last) for part in parts
        ]  # fmt: skip
        if sum(part.extent.points for part in parts) <= wanted.max_points:
            single += inside
            continue
        first = min(part.extent.first + part.offset for part in parts)
        last = max(part.extent.last + part.offset for part in parts)
        width = bucket_width(first, last, most=max(1, wanted.max_points - 2 * (len(parts) - 1)))
        buckets += [(piece, width) for piece in inside]
    read = read_points(single, limit=wanted.limit or wanted.max_points)
    read |= read_buckets(buckets)
    return [
        _joined([(read[part.series.pk], part.offset) for part in parts], wanted.limit) for parts in lines
    ]  # fmt: skip


def _joined(parts: Sequence[tuple[Line, int]], limit: int | None) -> Line:
    if len(parts) == 1 and not parts[0][1]:
        return parts[0][0]
    whole = Line()
    buckets = bool(parts) and parts[0][0].low is not None
    if buckets:
        whole = Line(low=[], high=[], last=[], count=[], nonfinite=[])
    for line, offset in parts:
        whole.x += [x + offset for x in line.x]
        whole.at += line.at
        whole.value += line.value
        if buckets:
            for name in ("low", "high", "last", "count", "nonfinite"):
                getattr(whole, name).extend(getattr(line, name))
    if limit is not None:
        whole.x, whole.at, whole.value = whole.x[:limit], whole.at[:limit], whole.value[:limit]
    return whole


def _restart(source: str) -> int:
    found = re.search(r"#(\d+)", source)
    return int(found[1]) if found else 0


# --- another horizontal axis ------------------------------------------------------------------------------


def _x_axis_values(
    run: Run, ancestors: list[Ancestor], wanted: ChartQuery, lines: list[Line]
) -> list[list[float | None] | None]:
    """For each line, where its points lie on the axis asked for: the policy version after the step, tokens trained
    on up to it, or unix seconds. Up to 20,000 steps exact; beyond, as of a bucket's end."""
    if not wanted.x_axis:
        return [None] * len(lines)
    if wanted.x_axis == "wall":
        return [list(line.at) for line in lines]
    about = ChartQuery(
        names=[_REFERENCES[wanted.x_axis]], join=wanted.join or "attempts", last=wanted.last,
        max_points=MAX_POINTS,
    )  # fmt: skip
    rows = MetricSeries.objects.filter(
        run_id__in=[found.run_id for found in ancestors], axis="step", name__in=about.names
    ).select_related("attempt")
    reference_lines = _lines(list(rows), ancestors, about)
    if not reference_lines:
        return [[None] * len(line.x) for line in lines]
    reference = _read(reference_lines, about)[0]
    values: list[float | None]
    if wanted.x_axis == "version":
        values = list(reference.last or reference.value)
    else:
        counts = reference.count or [1] * len(reference.x)
        lost = reference.nonfinite or [0] * len(reference.x)
        totals = [
            (mean or 0.0) * (n - bad) for mean, n, bad in zip(reference.value, counts, lost, strict=True)
        ]
        values = list(accumulate(totals))
    return [[_at_or_before(reference.x, values, x) for x in line.x] for line in lines]


def _at_or_before(xs: list[int], values: list[float | None], x: int) -> float | None:
    position = bisect_right(xs, x) - 1
    return values[position] if position >= 0 else None


def _as_json(
    parts: list[ChartSegment], line: Line, x_axis: list[float | None] | None, *, joined: bool
) -> dict[str, Any]:
    newest = parts[-1].series
    name = newest.name
    return {
        "name": name,
        "unit": metric.unit if (metric := find_metric(name)) else "",
        "axis": newest.axis,
        "source": without_restart(newest.source) if joined else newest.source,
        "attempt": newest.attempt.number,
        "x": line.x,
        "value": line.value,
        "at": line.at,
        "min": line.low,
        "max": line.high,
        "last": line.last,
        "count": line.count,
        "nonfinite": line.nonfinite,
        "x_axis": x_axis,
        "parts": [
            {
                "run": part.series.run_id,
                "attempt": part.series.attempt.number,
                "source": part.series.source,
                "first_x": part.extent.first + part.offset,
                "last_x": part.extent.last + part.offset,
            }
            for part in parts
        ]
        if joined
        else None,
    }
