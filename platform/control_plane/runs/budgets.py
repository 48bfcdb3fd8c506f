"""Monthly budgets of teams and projects: what is used of them, and what follows.

At 80 % the owner's active runs get an event. At 100 % they pause, playgrounds and reward tests end, and queued runs
wait. The scheduler reads the state that the last check has stored, so that a tick measures only what is used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q, QuerySet

from control_plane.accounts import selectors as accounts
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import Project, Team
from control_plane.fleet import access, pools
from control_plane.fleet.models import Pool
from control_plane.runs.budget_state import (
    Amounts,
    BudgetState,
    describe,
    month_end,
    month_start,
    state_of,
    used_fractions,
)
from control_plane.runs.events import record_event
from control_plane.runs.locking import for_each_locked
from control_plane.runs.models import Budget, Run
from control_plane.runs.selectors import live_attempt
from control_plane.runs.slot_requests import PREEMPTIBLE_KINDS
from control_plane.runs.termination import request_pause, request_stop
from oolong.contracts.lifecycle import EndReason, RunStatus

ACTIVE = (RunStatus.STARTING, RunStatus.RUNNING)

# A lease of a deleted run counts for the pool of its node.
_USED = """
SELECT l.team_id, l.project_id,
       sum(CASE WHEN s.device = 'cuda' THEN held.seconds ELSE 0 END) / 3600,
       sum(held.seconds * COALESCE(l.price_per_hour, 0)) / 3600
FROM fleet_lease l
JOIN fleet_slot s ON s.id = l.slot_id
JOIN fleet_node n ON n.id = s.node_id
LEFT JOIN runs_run r ON r.id = l.run
CROSS JOIN LATERAL (
    SELECT GREATEST(0, EXTRACT(EPOCH FROM LEAST(COALESCE(l.released_at, %(now)s), %(now)s)
                                          - GREATEST(l.granted_at, %(since)s))) AS seconds
) held
WHERE l.granted_at < %(now)s AND (l.released_at IS NULL OR l.released_at > %(since)s)
  AND COALESCE(r.spec #>> '{placement,pool}', n.pool_id) = %(pool)s
GROUP BY l.team_id, l.project_id
"""


@dataclass(frozen=True)
class MeasuredBudget:
    """A budget and what is used of it in the month of `now`."""

    row: Budget
    used: Amounts
    now: datetime

    @property
    def limits(self) -> Amounts:
        return Amounts(_number(self.row.gpu_hours), _number(self.row.cost))

    @property
    def state(self) -> BudgetState:
        return state_of(self.limits, self.used)

    @property
    def used_frac(self) -> float:
        return max(used_fractions(self.limits, self.used).values(), default=0.0)

    @property
    def message(self) -> str:
        project, team = self.row.project, self.row.team
        return describe(
            self.limits, self.used, pool=self.row.pool_id, currency=self.currency, now=self.now,
            owner=f"team {team.name}" if project is None else f"project {project.name}",
            raised_by="a pool admin" if project is None else "a team admin",
        )  # fmt: skip

    @property
    def currency(self) -> str:
        return str(settings.ENVIRONMENT.currency)

    @property
    def since(self) -> datetime:
        return month_start(self.now)

    @property
    def until(self) -> datetime:
        return month_end(self.now)


def visible_budgets(caller: Caller, pool: Pool, *, now: datetime) -> list[MeasuredBudget]:
    """All for those who manage the pool; else those of the caller's team and of the projects that the caller sees."""
    rows = _rows().filter(pool=pool)
    if access.manage_denied_reason(caller, pool):
        seen = Q(project=None) | Q(project__in=accounts.projects(caller))
        rows = rows.filter(seen, team=caller.project.team_id)
    return _measure(rows, pool.pk, now=now)


def set_budget(
    pool: Pool, team: Team, project: Project | None, changes: Mapping[str, Decimal | None], *, now: datetime
) -> MeasuredBudget:
    """Change limits of the budget of a team, or of one of its projects; others stay. Without any it is removed. Runs
    pause at the next check. A no-op is not audited."""
    with transaction.atomic():
        pool = pools.lock_pool(pool.pk)
        row = _rows().filter(pool=pool, team=team, project=project).first()
        row = row or Budget(pool=pool, team=team, project=project)
        changed = {
            name: {"before": _text(getattr(row, name)), "after": _text(value)}
            for name, value in changes.items()
            if getattr(row, name) != value
        }
        for name, value in changes.items():
            setattr(row, name, value)
        (measured,) = _measure([row], pool.pk, now=now)
        if row.gpu_hours is None and row.cost is None:
            if row.pk is not None:
                row.delete()
        elif changed:
            used_up = measured.state is BudgetState.EXHAUSTED  # the next check warns of less
            row.state = BudgetState.EXHAUSTED if used_up else BudgetState.WITHIN
            row.month = measured.since.date()
            row.save()
        if changed:
            owner = ("team", team.pk, team.name) if project is None else ("project", project.pk, project.name)
            projects = team.projects.all() if project is None else [project]
            pools.record_audit(
                "pool.set_budget", pool, target=owner, data=changed, projects={one.pk for one in projects}
            )
            pools.publish_pool_change()
    return measured


def exhausted(pool: str, *, now: datetime) -> dict[str, str]:
    """Team or project whose budget is used up → a sentence about it."""
    rows = _rows().filter(pool=pool, state=BudgetState.EXHAUSTED, month=month_start(now).date())
    return {
        one.row.project_id or one.row.team_id: one.message
        for one in _measure(rows, pool, now=now)
        if one.state is BudgetState.EXHAUSTED
    }


def check_budgets(*, now: datetime) -> None:
    """Measure every budget, warn once per month, and pause the runs of those that are used up."""
    for pool in Budget.objects.order_by("pool").values_list("pool", flat=True).distinct():
        for one in _measure(_rows().filter(pool=pool), pool, now=now):
            if _store(one) and one.state is BudgetState.WARNING:
                for_each_locked(_active_runs(one), partial(_warn, one))
            elif one.state is BudgetState.EXHAUSTED:
                for_each_locked(_active_runs(one), partial(_pause, one))


def _store(one: MeasuredBudget) -> bool:
    """Store the state; True when it is a new one. A budget that was changed since it was read waits for the next
    check."""
    row, month = one.row, one.since.date()
    if (row.state, row.month) == (one.state, month):
        return False
    unchanged = Budget.objects.filter(pk=row.pk, gpu_hours=row.gpu_hours, cost=row.cost)
    return bool(unchanged.update(state=one.state, month=month))


def _active_runs(one: MeasuredBudget) -> list[str]:
    runs = Run.objects.filter(status__in=ACTIVE, spec__placement__pool=one.row.pool_id)
    runs = runs.filter(project__team=one.row.team_id)
    if one.row.project_id is not None:
        runs = runs.filter(project=one.row.project_id)
    return list(runs.order_by("pk").values_list("pk", flat=True))


def _warn(one: MeasuredBudget, run: Run) -> None:
    record_event(run, "budget", one.message, at=one.now)


def _pause(one: MeasuredBudget, run: Run) -> None:
    """A run that is being preempted returns to the queue and waits there for the budget."""
    attempt = live_attempt(run)
    if run.status not in ACTIVE or attempt is None or attempt.reason:
        return
    if not Budget.objects.filter(pk=one.row.pk, state=BudgetState.EXHAUSTED).exists():
        return  # it was raised
    if run.kind in PREEMPTIBLE_KINDS:
        request_stop(run, EndReason.BUDGET_EXHAUSTED, one.message, now=one.now)
    else:
        request_pause(run, EndReason.BUDGET_EXHAUSTED, one.message, now=one.now)


def _measure(rows: Iterable[Budget], pool: str, *, now: datetime) -> list[MeasuredBudget]:
    rows = list(rows)
    if not rows:
        return []
    with connection.cursor() as cursor:
        cursor.execute(_USED, {"pool": pool, "now": now, "since": month_start(now)})
        leases = cursor.fetchall()
    return [
        MeasuredBudget(
            row,
            Amounts(
                *(
                    float(sum(one[column] for one in leases if _counts(row, team=one[0], project=one[1])))
                    for column in (2, 3)
                )
            ),
            now,
        )
        for row in rows
    ]


def _counts(row: Budget, *, team: str, project: str | None) -> bool:
    return team == row.team_id and row.project_id in (None, project)


def _rows() -> QuerySet[Budget]:
    """Teams by name, each before its projects."""
    return Budget.objects.select_related("team", "project").order_by("team__name", "project__name", "pk")


def _number(value: Decimal | None) -> float | None:
    return None if value is None else float(value)


def _text(value: Decimal | None) -> str | None:
    return None if value is None else str(value)
