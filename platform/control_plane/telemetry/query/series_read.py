"""Read points: single ones, or buckets of them, from rollups where there are any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db import connection

from control_plane.telemetry.compaction.rollups import WIDTHS

LOWEST, HIGHEST = -(2**63), 2**63 - 1
CHUNK_POINTS = 4096


@dataclass
class Line:
    """Points or buckets of one series, ascending in x; of a bucket x, at and last are those of its last point."""

    x: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)  # unix seconds
    value: list[float | None] = field(default_factory=list)  # mean of a bucket; None: not finite
    # Of buckets only; None for single points.
    low: list[float | None] | None = None
    high: list[float | None] | None = None
    last: list[float | None] | None = None
    count: list[int] | None = None
    nonfinite: list[int] | None = None


@dataclass(frozen=True)
class SeriesExtent:
    first: int
    last: int
    points: int  # counted only as far as was asked


@dataclass(frozen=True)
class Piece:
    """A series, and which of its points are wanted."""

    series_id: int
    first: int
    last: int
    rolled_to: int | None


_EXTENTS = """
SELECT w.id, least(r.lo, c.lo), greatest(r.hi, c.hi), r.n + c.n
FROM unnest(%(ids)s::bigint[], %(firsts)s::bigint[], %(lasts)s::bigint[]) AS w(id, first, last),
LATERAL (
    SELECT (SELECT x FROM telemetry_metricpoint WHERE series_id = w.id AND x BETWEEN w.first AND w.last
            ORDER BY x LIMIT 1) AS lo,
           (SELECT x FROM telemetry_metricpoint WHERE series_id = w.id AND x BETWEEN w.first AND w.last
            ORDER BY x DESC LIMIT 1) AS hi,
           (SELECT count(*) FROM (SELECT FROM telemetry_metricpoint WHERE series_id = w.id
            AND x BETWEEN w.first AND w.last LIMIT %(most)s) AS counted) AS n
) AS r,
LATERAL (
    SELECT min(e.lo) AS lo, max(e.hi) AS hi, coalesce(sum(e.n), 0) AS n FROM telemetry_metricchunk k,
    LATERAL (
        SELECT k.first_x AS lo, k.last_x AS hi, k.points AS n WHERE k.first_x >= w.first AND k.last_x <= w.last
        UNION ALL
        SELECT min(x), max(x), count(*) FROM unnest(k.xs) AS x
        WHERE (k.first_x < w.first OR k.last_x > w.last) AND x BETWEEN w.first AND w.last
    ) AS e
    WHERE k.series_id = w.id AND k.last_x >= w.first AND k.first_x <= w.last
) AS c
WHERE r.n + c.n > 0
"""
_POINTS = """
SELECT w.id, p.x, nullif(p.value, 'NaN'), extract(epoch FROM p.at)::float8
FROM unnest(%(ids)s::bigint[], %(firsts)s::bigint[], %(lasts)s::bigint[]) AS w(id, first, last),
LATERAL (
    (SELECT x, value, at FROM telemetry_metricpoint
     WHERE series_id = w.id AND x BETWEEN w.first AND w.last ORDER BY x LIMIT %(limit)s)
    UNION ALL
    SELECT u.x, u.value, u.at
    FROM (SELECT xs, values, ats FROM telemetry_metricchunk
          WHERE series_id = w.id AND last_x >= w.first AND first_x <= w.last
          ORDER BY first_x LIMIT %(chunks)s) AS k,
         unnest(k.xs, k.values, k.ats) AS u(x, value, at)
    WHERE u.x BETWEEN w.first AND w.last
    ORDER BY x LIMIT %(limit)s
) AS p
ORDER BY w.id, p.x
"""
# `low_end` to `high_end` is read from rollups, what lies before and behind it from points.
_BUCKETS = """
SELECT w.id, max(b.last_x), extract(epoch FROM (array_agg(b.last_at ORDER BY b.last_x DESC))[1])::float8,
       sum(b.mean * 2::float8 ^ -40 * b.finite) / nullif(sum(b.finite), 0) * 2::float8 ^ 40,
       min(b.low), max(b.high), (array_agg(b.last ORDER BY b.last_x DESC))[1],
       sum(b.points)::bigint, sum(b.points - b.finite)::bigint
FROM unnest(%(ids)s::bigint[], %(firsts)s::bigint[], %(lasts)s::bigint[], %(low_ends)s::bigint[],
            %(high_ends)s::bigint[], %(levels)s::int[], %(widths)s::bigint[], %(origins)s::bigint[])
     AS w(id, first, last, low_end, high_end, level, width, origin),
LATERAL (
    SELECT start AS x, points, finite, low, high, mean, last, last_x, last_at FROM telemetry_metricrollup
    WHERE series_id = w.id AND width = w.level AND start >= w.low_end AND start < w.high_end
    UNION ALL
    SELECT p.x, 1, (p.value <> 'NaN')::int, f.v, f.v, f.v, f.v, p.x, p.at
    FROM (
        SELECT x, value, at FROM telemetry_metricpoint
        WHERE series_id = w.id AND x >= w.first AND x < w.low_end AND x <= w.last
        UNION ALL
        SELECT x, value, at FROM telemetry_metricpoint
        WHERE series_id = w.id AND x >= w.high_end AND x BETWEEN w.first AND w.last
        UNION ALL
        SELECT u.x, u.value, u.at FROM telemetry_metricchunk k, unnest(k.xs, k.values, k.ats) AS u(x, value, at)
        WHERE k.series_id = w.id AND k.last_x >= w.first AND k.first_x <= w.last
          AND (k.first_x < w.low_end OR k.last_x >= w.high_end)
          AND u.x BETWEEN w.first AND w.last AND (u.x < w.low_end OR u.x >= w.high_end)
    ) AS p, LATERAL (SELECT nullif(p.value, 'NaN') AS v) AS f
) AS b
GROUP BY w.id, (b.x - w.origin) / w.width
ORDER BY w.id, 2
"""


def series_extents(pieces: Sequence[Piece], *, most: int) -> dict[int, SeriesExtent]:
    """Where each series begins and ends within what is wanted, and how many points that is. Counting stops
    somewhere beyond `most`. A series without points is left out."""
    if not pieces:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_EXTENTS, {**_columns(pieces), "most": most + 1})
        return {
            identity: SeriesExtent(first, last, int(points))
            for identity, first, last, points in cursor.fetchall()
        }


def read_points(pieces: Sequence[Piece], *, limit: int) -> dict[int, Line]:
    """The first `limit` points of each."""
    lines = {piece.series_id: Line() for piece in pieces}
    if not pieces:
        return lines
    with connection.cursor() as cursor:
        chunks = limit // CHUNK_POINTS + 2
        cursor.execute(_POINTS, {**_columns(pieces), "limit": limit, "chunks": chunks})
        for identity, x, value, at in cursor.fetchall():
            line = lines[identity]
            line.x.append(x)
            line.value.append(value)
            line.at.append(at)
    return lines


def read_buckets(wanted: Sequence[tuple[Piece, int]]) -> dict[int, Line]:
    """Buckets of each piece at its own width in x, aligned to multiples of it: they stay the same while a series
    grows. One statement, however many pieces and widths."""
    pieces = [piece for piece, _ in wanted]
    lines = {
        piece.series_id: Line(low=[], high=[], last=[], count=[], nonfinite=[]) for piece in pieces
    }  # fmt: skip
    if not pieces:
        return lines
    levels = [level_of(width) for _, width in wanted]
    rolled = [_rolled(piece, level) for piece, level in zip(pieces, levels, strict=True)]
    with connection.cursor() as cursor:
        cursor.execute(
            _BUCKETS,
            {
                **_columns(pieces), "levels": levels, "widths": [width for _, width in wanted],
                "low_ends": [low for low, _ in rolled], "high_ends": [high for _, high in rolled],
                # x - origin must not be negative, so that a division rounds down; nor too large for 64 bits.
                "origins": [max(piece.first // width * width, LOWEST) for piece, width in wanted],
            },
        )  # fmt: skip
        for identity, x, at, mean, low, high, last, count, nonfinite in cursor.fetchall():
            line = lines[identity]
            line.x.append(x)
            line.at.append(at)
            line.value.append(mean)
            assert line.low is not None and line.high is not None and line.last is not None
            assert line.count is not None and line.nonfinite is not None
            line.low.append(low)
            line.high.append(high)
            line.last.append(last)
            line.count.append(count)
            line.nonfinite.append(nonfinite)
    return lines


def bucket_width(first: int, last: int, *, most: int) -> int:
    """The least width of at most `most` buckets over first .. last that rollups can be put together to."""
    width = max(1, -(-(last - first + 1) // most))
    while True:
        level = level_of(width)
        width = -(-width // level) * level
        if last // width - first // width + 1 <= most:
            return width
        width += level


def level_of(width: int) -> int:
    """The widest rollup that fits; 1: the points themselves."""
    return max((level for level in WIDTHS if level <= width), default=1)


def _rolled(piece: Piece, level: int) -> tuple[int, int]:
    """From where to where rollups of this width stand for the wanted points; equal when they do nowhere."""
    if level == 1 or piece.rolled_to is None:
        return piece.first, piece.first
    low_end = -(-piece.first // level) * level
    high_end = min(piece.rolled_to, (piece.last + 1) // level * level)
    return (low_end, high_end) if low_end < high_end else (piece.first, piece.first)


def _columns(pieces: Sequence[Piece]) -> dict[str, list[int]]:
    return {
        "ids": [piece.series_id for piece in pieces],
        "firsts": [piece.first for piece in pieces],
        "lasts": [piece.last for piece in pieces],
    }
