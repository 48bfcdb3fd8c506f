"""Playgrounds and tests of rewards give their slots to the first run that needs them."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from control_plane.fleet.scheduler import Plan, Snapshot
from control_plane.fleet.yielding import Yielding, runs_to_end
from control_plane.runs.ending import begin_stop
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Attempt, Run
from control_plane.runs.resolve import DOORS
from oolong.contracts.lifecycle import AttemptStatus, EndReason, RunStatus

YIELDING_KINDS = frozenset(DOORS)
_MAY_END = (RunStatus.STARTING, RunStatus.RUNNING)


def take_slots_back(decided: Plan, snapshot: Snapshot, queued: dict[str, Run], *, now: datetime) -> int:
    """End what yields, where a run of the queue then fits. Returns how many were ended."""
    if not decided.waiting:
        return 0
    holders = _holders()
    if not holders:
        return 0
    yielding = frozenset(run.pk for run in queued.values() if run.kind in YIELDING_KINDS)
    ended = 0
    for run_id in runs_to_end(decided, snapshot, holders, yielding_requests=yielding):
        with transaction.atomic():
            run = lock_run(run_id)
            if run.status in _MAY_END:
                begin_stop(run, EndReason.PREEMPTED, "a run needs its slot", now=now)
                ended += 1
    return ended


def _holders() -> list[Yielding]:
    attempts = (
        Attempt.objects.filter(run__kind__in=YIELDING_KINDS, run__slots_needed__gt=0)
        .exclude(status=AttemptStatus.ENDED)
        .select_related("run__project")
    )
    return [
        Yielding(
            run=attempt.run_id, team=attempt.run.project.team_id, node=attempt.node_id,
            slots=attempt.run.slots_needed, leaves=attempt.run.status not in _MAY_END,
        )
        for attempt in attempts
    ]  # fmt: skip
