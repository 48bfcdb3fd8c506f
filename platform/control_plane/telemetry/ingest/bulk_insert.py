"""Columnar inserts of telemetry rows. A key that exists keeps its value; another value is a conflict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import nan
from typing import Any, NamedTuple

import msgspec
import numpy as np
from django.db import connection
from django.db.models import F

from control_plane.core.infra.pg_arrays import Float8Array, Int8Array, execute
from control_plane.runs.models import Job
from control_plane.telemetry.compaction.point_chunks import expand
from control_plane.telemetry.compaction.rollups import invalidate
from control_plane.telemetry.models import (
    ROWS,
    Histogram,
    MetricSeries,
    RunSpan,
    TrajectorySample,
    TrajectoryTokens,
)
from oolong.contracts import telemetry as contract

_INSERT_POINTS = """
INSERT INTO telemetry_metricpoint (series_id, x, value, at)
SELECT series_id, x, value, to_timestamp(at)
FROM unnest(%(series)s, %(xs)s, %(values)s, %(ats)s) AS incoming(series_id, x, value, at)
ON CONFLICT DO NOTHING
"""
# To PostgreSQL two NaN are equal.
_CONFLICTS = """
SELECT incoming.series_id, incoming.x, stored.value, incoming.value
FROM unnest(%(series)s, %(xs)s, %(values)s) AS incoming(series_id, x, value)
JOIN telemetry_metricpoint stored USING (series_id, x)
WHERE stored.value <> incoming.value
ORDER BY 1, 2
"""
_PUT_DOCUMENT = """
INSERT INTO telemetry_statesnapshot AS stored (run_id, attempt_id, name, at, value)
VALUES (%s, %s, %s, to_timestamp(%s), %s::jsonb)
ON CONFLICT (run_id, name) DO UPDATE
SET attempt_id = EXCLUDED.attempt_id, at = EXCLUDED.at, value = EXCLUDED.value
WHERE stored.at <= EXCLUDED.at
"""


@dataclass(frozen=True)
class Conflict:
    """A key that came again with another value; the stored value stays."""

    key: str
    stored: Any
    incoming: Any


SeriesKey = tuple[str, str, str, str]  # attempt, name, source, axis


class SeriesState(NamedTuple):
    pk: int
    rolled_to: int | None
    stored_as: str


def source_of(job: Job, file: str) -> str:
    """The job, and its restart in place when there was one: file names carry the incarnation."""
    incarnation = file.rpartition("-")[2].partition(".")[0]
    return (
        job.name
        if incarnation in ("", "0") or not incarnation.isdecimal()
        else f"{job.name}#{int(incarnation)}"
    )


def with_part(source: str, part: str) -> str:
    return f"{source}/{part}" if part else source


def insert_points(lines: Sequence[tuple[Job, str, contract.Points]]) -> list[Conflict]:
    """Points that are new, each with its job and source. null is a value that was not finite, and kept as NaN."""
    sourced = [
        (job.attempt_id, with_part(source, line.source), line) for job, source, line in lines if line.values
    ]
    if not sourced:
        return []
    runs = {job.attempt_id: job.attempt.run_id for job, _, _ in lines}
    keys: set[SeriesKey] = {
        (attempt, name, source, line.axis) for attempt, source, line in sourced for name in line.values
    }
    series = _series(runs, keys)
    if packed := [one.pk for one in series.values() if one.stored_as != ROWS]:
        expand(packed)
    late: dict[int, int] = {}
    ids, xs, values, ats = [], [], [], []
    for attempt, full_source, line in sourced:
        for name, value in line.values.items():
            one = series[attempt, name, full_source, line.axis]
            if one.rolled_to is not None and line.x < one.rolled_to:
                late[one.pk] = min(line.x, late.get(one.pk, line.x))
            ids.append(one.pk)
            xs.append(line.x)
            values.append(nan if value is None else value)
            ats.append(line.at)
    if late:
        invalidate(late)
    # Ordered by key: neighbours in the index are written one after the other. Stable, so that of a key that comes
    # twice the first value stays.
    order = np.lexsort((xs, ids))
    columns = {
        "series": Int8Array(np.array(ids)[order]),
        "xs": Int8Array(np.array(xs)[order]),
        "values": Float8Array(np.array(values)[order]),
        "ats": Float8Array(np.array(ats)[order]),
    }
    if execute(_INSERT_POINTS, columns).rowcount == len(ids):
        return []
    found = execute(_CONFLICTS, columns).fetchall()
    names = {one.pk: key for key, one in series.items()}
    conflicts = []
    for identity, x, stored, incoming in found:
        _, name, full_source, axis = names[identity]
        MetricSeries.objects.filter(pk=identity).update(conflicts=F("conflicts") + 1)
        conflicts.append(Conflict(f"{name} of {full_source} at {axis} {x}", stored, incoming))
    return conflicts


def _series(runs: Mapping[str, str], keys: set[SeriesKey]) -> dict[SeriesKey, SeriesState]:
    """`runs` gives the run of each attempt."""

    def known() -> dict[SeriesKey, SeriesState]:
        found = MetricSeries.objects.filter(
            attempt__in=sorted(runs), source__in=sorted({source for _, _, source, _ in keys})
        )
        columns = ("attempt_id", "name", "source", "axis", "pk", "rolled_to", "stored_as")
        return {
            (attempt, name, source, axis): SeriesState(*rest)
            for attempt, name, source, axis, *rest in found.values_list(*columns)
        }

    series = known()
    missing = sorted(keys - series.keys())
    if missing:
        MetricSeries.objects.bulk_create(
            [
                MetricSeries(run_id=runs[attempt], attempt_id=attempt, name=name, source=source, axis=axis)
                for attempt, name, source, axis in missing
            ],
            ignore_conflicts=True,
        )
        series = known()
    return series


def insert_histograms(job: Job, source: str, lines: list[contract.Histogram]) -> list[Conflict]:
    conflicts = []
    for line in lines:
        stored, created = Histogram.objects.get_or_create(
            attempt=job.attempt,
            name=line.name,
            source=source,
            x=line.x,
            defaults={"run_id": job.attempt.run_id, "counts": line.counts, "at": _moment(line.at)},
        )
        if not created and stored.counts != line.counts:
            conflicts.append(
                Conflict(f"histogram {line.name} of {source} at {line.x}", stored.counts, line.counts)
            )
    return conflicts


def upsert_state_snapshots(job: Job, lines: list[contract.StateSnapshot]) -> None:
    newest: dict[str, contract.StateSnapshot] = {}
    for line in lines:
        if line.name not in newest or newest[line.name].at <= line.at:
            newest[line.name] = line
    with connection.cursor() as cursor:
        # In one order for everybody: two jobs that write the same documents must not wait for each other.
        for name in sorted(newest):
            line = newest[name]
            value = msgspec.json.encode(line.value).decode()
            cursor.execute(_PUT_DOCUMENT, (job.attempt.run_id, job.attempt_id, name, line.at, value))


def insert_trajectories(job: Job, lines: list[contract.TrajectoryLine]) -> None:
    samples = TrajectorySample.objects.bulk_create(_sample(job, line) for line in lines)
    TrajectoryTokens.objects.bulk_create(
        TrajectoryTokens(
            sample=sample,
            token_ids=np.array(line.token_ids, dtype="<i4").tobytes(),
            logprobs=np.array(line.logprobs, dtype="<f4").tobytes(),
            token_chars=np.array(line.token_chars, dtype="<i4").tobytes(),
            # float32 makes NaN of None
            trainer_logprobs=np.array(line.trainer_logprobs, dtype="<f4").tobytes(),
            advantages=np.array(line.advantages, dtype="<f4").tobytes(),
        )
        for sample, line in zip(samples, lines, strict=True)
        if line.token_ids
    )


def _sample(job: Job, line: contract.TrajectoryLine) -> TrajectorySample:
    versions = [version for version in line.policy_versions[0::2] if version != contract.ENVIRONMENT]
    return TrajectorySample(
        run_id=job.attempt.run_id,
        attempt=job.attempt,
        at=_moment(line.at),
        step=line.step,
        group_id=line.group_id,
        prompt=line.prompt,
        answer=line.answer,
        completion=line.completion,
        reward=line.reward,
        policy_versions=line.policy_versions,
        version_texts=line.version_texts,
        finish_reason=line.finish_reason,
        reward_parts=line.reward_parts,
        reward_result=line.reward_result,
        reward_text=line.reward_text,
        sample_reasons=line.sample_reasons,
        row=line.row if line.row >= 0 else None,
        member=line.member,
        score=line.score,
        tokens=sum(line.policy_versions[1::2]),
        low_version=min(versions, default=None),
        high_version=max(versions, default=None),
        timeline=line.timeline,
    )


def insert_spans(job: Job, lines: list[contract.Spans]) -> None:
    RunSpan.objects.bulk_create(
        RunSpan(
            run_id=job.attempt.run_id,
            attempt=job.attempt.number,
            lane=job.name,
            kind=span.kind,
            start=span.start,
            end=span.end,
            version=span.version if span.version >= 0 else None,
            group_id=span.group_id,
            member=span.member if span.member >= 0 else None,
            outcome=span.outcome,
            sampled_groups=line.sampled_groups,
        )
        for line in lines
        for span in line.spans
    )


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
