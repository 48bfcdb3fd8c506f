"""Compaction: the points of ended runs move from single rows into chunks of columns, at an eighth of the size.

A tick takes a stretch of points at a time: in one transaction they are written as chunks, read back and compared
with their rows, and only then are the rows deleted. A tick that is killed leaves either the rows or the chunks, and
the next tick continues. Reads cover both, so they return the same before, during and after.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta

from django.db import connection, transaction

from control_plane.runs.locking import lock_run
from control_plane.telemetry.compaction.rollups import roll_up
from control_plane.telemetry.models import CHUNKS, MIXED, ROWS, MetricChunk, MetricSeries
from control_plane.telemetry.query.series_read import CHUNK_POINTS
from oolong.contracts.lifecycle import ENDED

log = logging.getLogger(__name__)

SETTLE_TIME = timedelta(hours=1)  # after a run's end: agents ship its last lines until then
TICK_SECONDS = 20.0
POINTS_AT_ONCE = 128 * CHUNK_POINTS

_COMPACT = """
INSERT INTO telemetry_metricchunk (series_id, first_x, last_x, points, xs, "values", ats)
SELECT %(series)s, min(x), max(x), count(*), array_agg(x ORDER BY x), array_agg(value ORDER BY x),
       array_agg(at ORDER BY x)
FROM (SELECT x, value, at, (row_number() OVER (ORDER BY x) - 1) / %(size)s AS chunk
      FROM telemetry_metricpoint WHERE series_id = %(series)s ORDER BY x LIMIT %(most)s) AS taken
GROUP BY chunk
RETURNING first_x, last_x, points
"""
_MISMATCHES = """
SELECT count(*) FROM (SELECT x, value, at FROM telemetry_metricpoint
                      WHERE series_id = %(series)s AND x BETWEEN %(first)s AND %(last)s) AS p
FULL JOIN (SELECT u.* FROM telemetry_metricchunk k, unnest(k.xs, k.values, k.ats) AS u(x, value, at)
           WHERE k.series_id = %(series)s AND k.first_x BETWEEN %(first)s AND %(last)s) AS c USING (x)
WHERE float8send(p.value) IS DISTINCT FROM float8send(c.value) OR p.at IS DISTINCT FROM c.at
"""
_EXPAND = """
INSERT INTO telemetry_metricpoint (series_id, x, value, at)
SELECT k.series_id, u.x, u.value, u.at
FROM telemetry_metricchunk k, unnest(k.xs, k.values, k.ats) AS u(x, value, at) WHERE k.series_id = ANY(%s)
"""


class CompactionMismatch(Exception):
    """The chunks differ from the rows. The rows stay."""


def compact_ended_runs(*, now: datetime) -> int:
    """Pack series of runs that ended a while ago, for some seconds; returns how many points moved."""
    until = time.monotonic() + TICK_SECONDS
    waiting = (
        MetricSeries.objects.exclude(stored_as=CHUNKS)
        .filter(run__status__in=ENDED, run__ended_at__lt=now - SETTLE_TIME)
        .order_by("run_id", "pk")
        .values_list("run_id", "pk")
    )
    moved = 0
    for run_id, series_id in waiting[:10_000]:
        while time.monotonic() < until:
            try:
                with transaction.atomic():
                    if lock_run(run_id, skip_locked=True) is None:
                        break
                    count = compact(MetricSeries.objects.get(pk=series_id))
            except CompactionMismatch:
                log.exception("a series stays as rows; the others go on")
                break
            moved += count
            if count < POINTS_AT_ONCE:
                break
    return moved


def compact(series: MetricSeries) -> int:
    """One stretch of points of a series; returns how many. The caller holds the run."""
    while roll_up(series):
        pass
    with connection.cursor() as cursor:
        values = {"series": series.pk, "size": CHUNK_POINTS, "most": POINTS_AT_ONCE}
        cursor.execute(_COMPACT, values)
        chunks = cursor.fetchall()
        points = sum(count for _, _, count in chunks)
        if chunks:
            stretch = {
                "series": series.pk,
                "first": min(first for first, _, _ in chunks),
                "last": max(last for _, last, _ in chunks),
            }
            cursor.execute(_MISMATCHES, stretch)
            different = cursor.fetchone()[0]
            if different:
                raise CompactionMismatch(
                    f"series {series.pk}: {different} of {points} points came back otherwise; they stay rows"
                )
            cursor.execute(
                "DELETE FROM telemetry_metricpoint"
                " WHERE series_id = %(series)s AND x BETWEEN %(first)s AND %(last)s",
                stretch,
            )
            if cursor.rowcount != points:
                raise CompactionMismatch(
                    f"series {series.pk}: {cursor.rowcount} rows for {points} packed points"
                )
    series.stored_as = CHUNKS if points < POINTS_AT_ONCE else MIXED
    series.save(update_fields=["stored_as"])
    return points


def expand(series_ids: list[int]) -> None:
    """Turn chunks into rows again, because a line of an ended run came late. The caller holds the run."""
    with connection.cursor() as cursor:
        cursor.execute(_EXPAND, (series_ids,))
    MetricChunk.objects.filter(series_id__in=series_ids).delete()
    MetricSeries.objects.filter(pk__in=series_ids).update(stored_as=ROWS)
