"""Rollups: aggregates over ranges of a long series, so that a chart need not read its points.

A tick rolls up whole blocks of 4096 x that lie behind the newest point; `MetricSeries.rolled_to` says how far. A
point that comes late, below that, deletes the rollups from its block on (`invalidate`), and the tick makes them again.
Both hold the run's row, so they never cross. Extremes are exact; a mean is that of the finite points.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise

from django.db import connection
from django.db.models import Q

from control_plane.runs.locking import for_each_locked
from control_plane.runs.models import Run
from control_plane.telemetry.models import CHUNKS, MetricRollup, MetricSeries
from oolong.contracts.lifecycle import ENDED

WIDTHS = (16, 256, 4096)
BLOCK = WIDTHS[-1]
LATE_LINES_WINDOW = timedelta(hours=2)  # an ended run is watched for so long: its last lines may still come
POINTS_AT_ONCE = 250_000  # bounds how long the run waits

# Means are added up scaled down by 2**-40, which is exact: a sum of the largest numbers must not overflow.
_FROM_POINTS = """
INSERT INTO telemetry_metricrollup
       (series_id, width, start, points, finite, low, high, mean, last, last_x, last_at)
SELECT series_id, 16, (x >> 4) << 4, count(*), count(*) FILTER (WHERE value <> 'NaN'),
       min(value) FILTER (WHERE value <> 'NaN'), max(value) FILTER (WHERE value <> 'NaN'),
       sum(value * 2::float8 ^ -40) FILTER (WHERE value <> 'NaN')
           / nullif(count(*) FILTER (WHERE value <> 'NaN'), 0) * 2::float8 ^ 40,
       nullif((array_agg(value ORDER BY x DESC))[1], 'NaN'), max(x), (array_agg(at ORDER BY x DESC))[1]
FROM telemetry_metricpoint WHERE series_id = %(series)s AND x >= %(first)s AND x < %(end)s
GROUP BY series_id, x >> 4
"""
_FROM_ROLLUPS = """
INSERT INTO telemetry_metricrollup
       (series_id, width, start, points, finite, low, high, mean, last, last_x, last_at)
SELECT series_id, %(width)s, (start >> %(bits)s) << %(bits)s, sum(points), sum(finite), min(low), max(high),
       sum(mean * 2::float8 ^ -40 * finite) / nullif(sum(finite), 0) * 2::float8 ^ 40,
       (array_agg(last ORDER BY last_x DESC))[1], max(last_x), (array_agg(last_at ORDER BY last_x DESC))[1]
FROM telemetry_metricrollup
WHERE series_id = %(series)s AND width = %(finer)s AND start >= %(first)s AND start < %(end)s
GROUP BY series_id, start >> %(bits)s
"""
_RUNS_BEHIND = """
SELECT DISTINCT s.run_id FROM telemetry_metricseries s,
     LATERAL (SELECT x FROM telemetry_metricpoint WHERE series_id = s.id ORDER BY x LIMIT 1) AS oldest,
     LATERAL (SELECT x FROM telemetry_metricpoint WHERE series_id = s.id ORDER BY x DESC LIMIT 1) AS newest
WHERE s.run_id = ANY(%s) AND s.stored_as <> 'chunks' AND coalesce(s.rolled_to, oldest.x) >> 12 < newest.x >> 12
"""
_EXTENT = """
SELECT (SELECT x FROM telemetry_metricpoint WHERE series_id = %(series)s ORDER BY x LIMIT 1),
       (SELECT x FROM telemetry_metricpoint WHERE series_id = %(series)s ORDER BY x DESC LIMIT 1),
       (SELECT x FROM telemetry_metricpoint WHERE series_id = %(series)s AND x >= %(from)s
        ORDER BY x OFFSET %(most)s LIMIT 1)
"""


def roll_up_runs(*, now: datetime) -> None:
    """Every series that has grown by a whole block, of runs that go on or have only just ended."""
    lively = Run.objects.exclude(status__in=ENDED) | Run.objects.filter(ended_at__gt=now - LATE_LINES_WINDOW)
    with connection.cursor() as cursor:
        cursor.execute(_RUNS_BEHIND, (list(lively.values_list("pk", flat=True)),))
        behind = sorted(run_id for (run_id,) in cursor.fetchall())
    for_each_locked(behind, _roll_up_run)


def _roll_up_run(run: Run) -> None:
    """One round: what is then still behind, the next tick takes."""
    room = POINTS_AT_ONCE
    for series in MetricSeries.objects.filter(run=run).exclude(stored_as=CHUNKS):
        room -= roll_up(series, most=max(room, BLOCK))
        if room <= 0:
            return


def roll_up(series: MetricSeries, *, most: int = POINTS_AT_ONCE) -> int:
    """Blocks behind the newest point, about `most` points of them; returns how many points that were. The caller
    holds the run."""
    lowest = -(2**63) if series.rolled_to is None else series.rolled_to
    with connection.cursor() as cursor:
        cursor.execute(_EXTENT, {"series": series.pk, "from": lowest, "most": most})
        oldest, newest, beyond = cursor.fetchone()
        if oldest is None:
            return 0
        first = block_of(oldest) if series.rolled_to is None else series.rolled_to
        end = block_of(newest)
        if beyond is not None:
            end = min(end, max(block_of(beyond), first + BLOCK))
        if end <= first:
            return 0
        cursor.execute(_FROM_POINTS, {"series": series.pk, "first": first, "end": end})
        for finer, width in pairwise(WIDTHS):
            bits = width.bit_length() - 1
            cursor.execute(
                _FROM_ROLLUPS,
                {
                    "series": series.pk, "width": width, "bits": bits, "finer": finer, "first": first, "end": end,
                },
            )  # fmt: skip
        cursor.execute(
            "SELECT coalesce(sum(points), 0) FROM telemetry_metricrollup"
            " WHERE series_id = %s AND width = %s AND start >= %s",
            (series.pk, BLOCK, first),
        )
        points = int(cursor.fetchone()[0])
    series.rolled_to = end
    series.save(update_fields=["rolled_to"])
    return points


def invalidate(late: Mapping[int, int]) -> None:
    """Delete the rollups that late points change: series → the lowest such x. The caller holds the run."""
    for series_id, x in late.items():
        block = block_of(x)
        MetricRollup.objects.filter(Q(series_id=series_id, start__gte=block)).delete()
        first = MetricRollup.objects.filter(series_id=series_id).exists()
        MetricSeries.objects.filter(pk=series_id).update(rolled_to=block if first else None)


def block_of(x: int) -> int:
    """Where the block of x begins."""
    return x // BLOCK * BLOCK
