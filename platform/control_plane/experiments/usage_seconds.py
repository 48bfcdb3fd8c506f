"""Slot time of runs, measured from leases and jobs, cut into buckets of time.

A lease counts for the part that lies in a bucket, in whole microseconds, so that buckets and rows add up exactly. The
phases of its job are spread evenly over the lease. Time is lost if a later attempt of the run resumed from an older
state: from the checkpoint it resumed from, or else from the start of the attempt, to the attempt's end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from django.db import connection

from control_plane.accounts import selectors as accounts
from control_plane.accounts.identity.caller import Caller
from control_plane.experiments.usage_outcomes import RunTokens
from oolong.contracts.lifecycle import JobKind

By = Literal["team", "project", "run"]
MEASURED = ("generate", "train", "wait", "sync", "evaluate")
MICROSECONDS = 1_000_000

_SECONDS = """
WITH cut AS (
    SELECT l.run, l.team_id, l.holder, l.price_per_hour, s.device, bucket,
           GREATEST(l.granted_at, %(since)s, %(origin)s + bucket * %(width)s) AS begins,
           LEAST(COALESCE(l.released_at, %(until)s), %(until)s, %(origin)s + (bucket + 1) * %(width)s) AS ends,
           EXTRACT(EPOCH FROM COALESCE(l.released_at, GREATEST(%(now)s, l.granted_at)) - l.granted_at) AS whole,
           CASE WHEN j.evaluates > '' THEN 'evaluator' ELSE j.kind END AS kind,
           COALESCE(j.working_seconds, 0) AS working, COALESCE(j.waiting_seconds, 0) AS waiting,
           COALESCE(j.syncing_seconds, 0) AS syncing
    FROM fleet_lease l JOIN fleet_slot s ON s.id = l.slot_id LEFT JOIN runs_job j ON j.id = l.job
    CROSS JOIN LATERAL generate_series(
        floor(EXTRACT(EPOCH FROM GREATEST(l.granted_at, %(since)s) - %(origin)s) / %(width_seconds)s)::int,
        ceil(EXTRACT(EPOCH FROM LEAST(COALESCE(l.released_at, %(until)s), %(until)s) - %(origin)s)
             / %(width_seconds)s)::int - 1
    ) AS bucket
    WHERE l.granted_at < %(until)s AND (l.released_at IS NULL OR l.released_at > %(since)s)
      AND (%(device)s = '' OR s.device = %(device)s)
), recomputed AS (
    SELECT a.id, COALESCE(a.ending_at, a.ended_at) AS until,
           min(CASE WHEN c.id IS NULL OR c.attempt_number < a.number THEN a.created_at
                    WHEN c.attempt_number = a.number THEN c.created_at END) AS since
    FROM runs_attempt a
    JOIN runs_attempt later ON later.run_id = a.run_id AND later.number > a.number
    LEFT JOIN checkpoints_checkpoint c ON c.id = later.resume_checkpoint_id AND c.run_id = a.run_id
    WHERE a.run_id IN (SELECT run FROM cut)
    GROUP BY a.id
), held AS (
    SELECT cut.*, EXTRACT(EPOCH FROM ends - begins) AS seconds,
           CASE WHEN r.since < r.until
                THEN GREATEST(0, EXTRACT(EPOCH FROM LEAST(ends, r.until) - GREATEST(begins, r.since)))
                ELSE 0 END AS lost
    FROM cut LEFT JOIN recomputed r ON r.id = cut.holder
), parts AS (
    SELECT run, team_id, device, price_per_hour, bucket, kind, working, waiting, syncing, seconds, lost,
           seconds / NULLIF(GREATEST(whole, working + waiting + syncing), 0) AS part,
           (seconds - lost) / NULLIF(GREATEST(whole, working + waiting + syncing), 0) AS kept
    FROM held
), per_run AS (
    SELECT run, team_id, bucket, sum(seconds) AS slots, sum(seconds) FILTER (WHERE device = 'cuda') AS gpus,
           sum(seconds * price_per_hour / 3600) AS cost, sum(seconds) FILTER (WHERE price_per_hour IS NULL) AS unpriced,
           sum(lost) AS lost,
           sum(working * part) FILTER (WHERE kind = %(rollout)s) AS generate,
           sum(working * part) FILTER (WHERE kind = %(trainer)s) AS train,
           sum(waiting * part) AS wait, sum(syncing * part) AS sync,
           sum(working * part) FILTER (WHERE kind = 'evaluator') AS evaluate,
           sum(working * kept) FILTER (WHERE kind = %(rollout)s) AS kept_generate,
           sum(working * kept) FILTER (WHERE kind = %(trainer)s) AS kept_train,
           sum(waiting * kept) AS kept_wait, sum(syncing * kept) AS kept_sync,
           sum(working * kept) FILTER (WHERE kind = 'evaluator') AS kept_evaluate
    FROM parts GROUP BY run, team_id, bucket
)
SELECT CASE WHEN u.team_id = %(team)s OR %(every_team)s THEN t.id END, t.name,
       CASE WHEN p.id = ANY(%(projects)s) THEN p.id END, p.name,
       CASE WHEN p.id = %(own)s THEN r.id END, r.name,
       u.run, COALESCE(r.kind, ''), u.bucket,
       (u.slots * 1000000)::bigint, (COALESCE(u.gpus, 0) * 1000000)::bigint, (u.lost * 1000000)::bigint,
       (COALESCE(u.cost, 0) * 1000000)::bigint, (COALESCE(u.unpriced, 0) * 1000000)::bigint,
       COALESCE(generate, 0), COALESCE(train, 0), COALESCE(wait, 0), COALESCE(sync, 0), COALESCE(evaluate, 0),
       COALESCE(kept_generate, 0), COALESCE(kept_train, 0), COALESCE(kept_wait, 0), COALESCE(kept_sync, 0),
       COALESCE(kept_evaluate, 0),
       a.tokens_generated, a.tokens_trained, a.tokens_wasted, a.tokens_dropped::text, a.tokens_lost,
       a.tokens_in_flight
FROM per_run u
JOIN accounts_team t ON t.id = u.team_id
LEFT JOIN runs_run r ON r.id = u.run
LEFT JOIN accounts_project p ON p.id = r.project_id
LEFT JOIN LATERAL (
    SELECT * FROM runs_attempt WHERE run_id = u.run AND tokens_generated > 0 ORDER BY number DESC LIMIT 1
) a ON true
ORDER BY u.run, u.bucket
"""


@dataclass(frozen=True, kw_only=True)
class UsageQuery:
    since: datetime
    until: datetime  # not after now
    now: datetime
    by: By = "run"
    device: str = ""  # cpu or cuda; empty: all
    bucket: timedelta | None = (
        None  # None: one for the whole window; else it begins at a multiple of it in UTC
    )

    @property
    def origin(self) -> datetime:
        """Start of the first bucket."""
        if self.bucket is None:
            return self.since
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        return self.since - (self.since - epoch) % self.bucket

    @property
    def width(self) -> timedelta:
        return self.bucket or self.until - self.since

    @property
    def starts(self) -> list[datetime]:
        """Of the buckets, ascending."""
        return [self.origin + n * self.width for n in range(-(-(self.until - self.origin) // self.width))]


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """What one run held in one bucket. Names are None where the caller may not see them."""

    team: tuple[str, str] | None  # id, name
    project: tuple[str, str] | None
    run: tuple[str, str] | None
    run_id: str
    kind: str  # of the run; empty: it was deleted
    bucket: int
    slots: int  # microseconds of all slots
    gpus: int  # microseconds of GPU slots
    lost: int  # microseconds of `slots` whose work a later attempt did again
    cost: int  # millionths of the currency
    unpriced: int  # microseconds of `slots` without a price
    phases: dict[str, float]  # seconds by MEASURED phase
    kept: dict[str, float]  # of them, those that were not lost
    tokens: RunTokens | None  # of the whole run; None: it reported none


def measured_runs(caller: Caller, query: UsageQuery) -> Iterator[MeasuredRun]:
    values: dict[str, Any] = {
        "since": query.since, "until": query.until, "now": query.now, "device": query.device,
        "origin": query.origin, "width": query.width, "width_seconds": query.width.total_seconds(),
        "rollout": JobKind.ROLLOUT, "trainer": JobKind.TRAINER,
        "team": caller.project.team_id, "own": caller.project.pk,
        "every_team": "installation:admin" in caller.scopes,
        "projects": [project.pk for project in accounts.projects(caller)],
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_SECONDS, values)
        for row in cursor.fetchall():
            yield _measured(row)


def _measured(row: tuple[Any, ...]) -> MeasuredRun:
    team, team_name, project, project_name, run, run_name, run_id, kind, bucket, slots, gpus, lost, *rest = (
        row
    )
    cost, unpriced, *rest = rest
    seconds = [float(value) for value in rest[:10]]
    return MeasuredRun(
        team=_named(team, team_name), project=_named(project, project_name), run=_named(run, run_name),
        run_id=run_id, kind=kind, bucket=bucket, slots=slots, gpus=gpus, lost=lost, cost=cost, unpriced=unpriced,
        phases=dict(zip(MEASURED, seconds[:5], strict=True)), kept=dict(zip(MEASURED, seconds[5:], strict=True)),
        tokens=RunTokens.of_columns(*rest[10:]),
    )  # fmt: skip


def _named(identity: str | None, name: str | None) -> tuple[str, str] | None:
    return (identity, name or "") if identity else None
