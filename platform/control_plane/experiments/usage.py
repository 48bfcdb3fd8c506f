"""Usage of pools: slot seconds by phase, from leases, and tokens by their outcome.

A lease counts for the part that lies in the window. The phases of its job are spread evenly over the lease; the rest
(start, end, checkpoints, jobs without measurements) is `other`, so that phases add up to the lease. Every second of the
pool is included: usage that the caller may not see by name is one row without a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from django.db import connection

from control_plane.accounts import selectors as accounts
from control_plane.accounts.identity.caller import Caller
from oolong.contracts.lifecycle import JobKind

By = Literal["team", "project", "run"]
PHASES = ("generate", "train", "wait", "sync", "evaluate", "other")

_USAGE = """
WITH held AS (
    SELECT l.run, l.team_id, s.device,
           EXTRACT(EPOCH FROM LEAST(COALESCE(l.released_at, %(until)s), %(until)s)
                              - GREATEST(l.granted_at, %(since)s)) AS seconds,
           EXTRACT(EPOCH FROM COALESCE(l.released_at, GREATEST(%(now)s, l.granted_at)) - l.granted_at) AS whole,
           CASE WHEN j.evaluates > '' THEN 'evaluator' ELSE j.kind END AS kind,
           COALESCE(j.working_seconds, 0) AS working, COALESCE(j.waiting_seconds, 0) AS waiting,
           COALESCE(j.syncing_seconds, 0) AS syncing
    FROM fleet_lease l JOIN fleet_slot s ON s.id = l.slot_id LEFT JOIN runs_job j ON j.id = l.job
    WHERE l.granted_at < %(until)s AND (l.released_at IS NULL OR l.released_at > %(since)s)
      AND (%(device)s = '' OR s.device = %(device)s)
), parts AS (
    SELECT *, seconds / NULLIF(GREATEST(whole, working + waiting + syncing), 0) AS part FROM held
), per_run AS (
    SELECT run, team_id, sum(seconds) AS slots, sum(seconds) FILTER (WHERE device = 'cuda') AS gpus,
           sum(working * part) FILTER (WHERE kind = %(rollout)s) AS generate,
           sum(working * part) FILTER (WHERE kind = %(trainer)s) AS train,
           sum(waiting * part) AS wait, sum(syncing * part) AS sync,
           sum(working * part) FILTER (WHERE kind = 'evaluator') AS evaluate
    FROM parts GROUP BY run, team_id
), named AS (
    SELECT u.*, a.tokens_generated, a.tokens_trained, a.tokens_wasted,
           CASE WHEN u.team_id = %(team)s OR %(every_team)s THEN t.id END AS team, t.name AS team_name,
           CASE WHEN p.id = ANY(%(projects)s) THEN p.id END AS project, p.name AS project_name,
           CASE WHEN p.id = %(own)s THEN r.id END AS shown, r.name AS run_name
    FROM per_run u
    JOIN accounts_team t ON t.id = u.team_id
    LEFT JOIN runs_run r ON r.id = u.run
    LEFT JOIN accounts_project p ON p.id = r.project_id
    LEFT JOIN LATERAL (
        SELECT tokens_generated, tokens_trained, tokens_wasted FROM runs_attempt
        WHERE run_id = u.run AND tokens_generated > 0 ORDER BY number DESC LIMIT 1
    ) a ON true
)
SELECT {keys}, count(*) AS runs, sum(slots) AS slots, COALESCE(sum(gpus), 0), COALESCE(sum(generate), 0),
       COALESCE(sum(train), 0), COALESCE(sum(wait), 0), COALESCE(sum(sync), 0),
       COALESCE(sum(evaluate), 0),
       sum(tokens_generated), sum(tokens_trained), sum(tokens_wasted)
FROM named GROUP BY {groups} ORDER BY slots DESC, 1 NULLS LAST, 3 NULLS LAST, 5 NULLS LAST
"""
_KEYS = (("team", "team_name"), ("project", "project_name"), ("shown", "run_name"))
_DEPTH: dict[By, int] = {"team": 1, "project": 2, "run": 3}


@dataclass(frozen=True, kw_only=True)
class UsageQuery:
    since: datetime
    until: datetime  # not after now
    now: datetime
    by: By
    device: str = ""  # cpu or cuda; empty: all


def usage(caller: Caller, query: UsageQuery) -> Iterator[dict[str, Any]]:
    """Usage rows by team, project or run, largest first."""
    depth = _DEPTH[query.by]
    keys, groups = [], []
    for index, (identity, name) in enumerate(_KEYS):
        shown = f"CASE WHEN {identity} IS NOT NULL THEN {name} END"
        keys += [identity, shown] if index < depth else ["NULL", "NULL"]
        groups += [identity, shown] if index < depth else []
    statement = _USAGE.format(keys=", ".join(keys), groups=", ".join(groups))
    values: dict[str, Any] = {
        "since": query.since, "until": query.until, "now": query.now, "device": query.device,
        "rollout": JobKind.ROLLOUT, "trainer": JobKind.TRAINER,
        "team": caller.project.team_id, "own": caller.project.pk,
        "every_team": "installation:admin" in caller.scopes,
        "projects": [project.pk for project in accounts.projects(caller)],
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        for row in cursor.fetchall():
            yield _usage_row(row)


def total(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "runs": sum(row["runs"] for row in rows),
        "slot_seconds": sum(row["slot_seconds"] for row in rows),
        "gpu_seconds": sum(row["gpu_seconds"] for row in rows),
        "phases": {name: sum(row["phases"][name] for row in rows) for name in PHASES},
        "tokens": {
            name: sum(row["tokens"][name] or 0 for row in rows) for name in ("generated", "trained", "wasted")
        },
    }


def _usage_row(row: tuple[Any, ...]) -> dict[str, Any]:
    team, team_name, project, project_name, run, run_name, runs, *sums = row
    slots, gpus, *told = map(float, sums[:7])
    phases = (*told, max(0.0, slots - sum(told)))
    return {
        "team": _named(team, team_name),
        "project": _named(project, project_name),
        "run": _named(run, run_name),
        "runs": runs,
        "slot_seconds": round(slots, 3),
        "gpu_seconds": round(gpus, 3),
        "phases": dict(zip(PHASES, (round(phase, 3) for phase in phases), strict=True)),
        "tokens": dict(
            zip(("generated", "trained", "wasted"), (_whole(sum) for sum in sums[7:]), strict=True)
        ),
    }


def _named(identity: str | None, name: str | None) -> dict[str, str] | None:
    return {"id": identity, "name": name or ""} if identity else None


def _whole(number: Any) -> int | None:
    return None if number is None else int(number)
