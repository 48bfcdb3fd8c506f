"""Sweeps: many runs of one spec, a few at a time, until all points ran, a target is met, or somebody ends it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from pydantic import ValidationError

from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.selectors import caller_in
from control_plane.core.api.errors import FieldError, Problem, conflict, or_not_found, unprocessable
from control_plane.core.infra.isolate_errors import apart
from control_plane.experiments.models import Sweep, SweepTrial
from control_plane.experiments.sweep_plan import SweepPlan, name_of, reached, set_values, to_be_stopped
from control_plane.runs.events import note
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Run
from control_plane.runs.spec_resolution import resolve_spec
from control_plane.runs.submission import cancel_run, create_run, pause_run, resume_run, stop_run
from control_plane.webhooks import outbox
from oolong.contracts.lifecycle import ENDED, EndReason, RunStatus
from oolong.contracts.model_faults import faults_of

log = logging.getLogger(__name__)
MOST_SHOWN = 20  # faults of points that one answer names


class SweepStatus(StrEnum):
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FINISHED = "FINISHED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


LIVE = (SweepStatus.RUNNING, SweepStatus.PAUSED)


def sweeps(caller: Caller) -> QuerySet[Sweep]:
    return Sweep.objects.filter(project=caller.project).select_related("created_by", "project")


def sweep_for(caller: Caller, sweep_id: str) -> Sweep:
    return or_not_found(sweeps(caller).filter(pk=sweep_id).first(), "sweep", sweep_id)


def plan_of(sweep: Sweep) -> SweepPlan:
    return SweepPlan.model_validate(sweep.plan)


def create_sweep(
    caller: Caller,
    *,
    name: str,
    spec: Mapping[str, Any],
    plan: Mapping[str, Any],
    max_parallel: int,
    now: datetime,
) -> Sweep:
    """Every point is checked before the first run is made. 422 names the parameter, or the point and its field."""
    read = _read_plan(plan)
    points = read.points()
    _refuse_bad_points(caller, spec, points)
    with transaction.atomic():
        sweep = Sweep.objects.create(
            project=caller.project, created_by=caller.user, name=name, spec=dict(spec),
            plan=read.model_dump(mode="json"), max_parallel=max_parallel, status=SweepStatus.RUNNING, created_at=now,
        )  # fmt: skip
        SweepTrial.objects.bulk_create(
            SweepTrial(sweep=sweep, number=number, values=values)
            for number, values in enumerate(points, start=1)
        )
        _record("create", sweep, now=now)
    return sweep


def pause_sweep(sweep_id: str, *, now: datetime) -> Sweep:
    """No new runs, and those that it has rest; the tick sees to them. Asking again changes nothing; 409 when it has
    ended."""
    return _ask(sweep_id, SweepStatus.PAUSED, now=now)


def resume_sweep(sweep_id: str, *, now: datetime) -> Sweep:
    return _ask(sweep_id, SweepStatus.RUNNING, now=now)


def cancel_sweep(sweep_id: str, *, by: Caller, now: datetime) -> Sweep:
    """No new runs, and those that it has end without a last checkpoint. Asking again changes nothing; 409 when it has
    ended otherwise."""
    with transaction.atomic():
        sweep = _ask(sweep_id, SweepStatus.CANCELLED, now=now, message=f"cancelled by {by.user.username}")
        _skip_rest(sweep, "the sweep was cancelled")
    return sweep


# --- the tick: every run is handled in a transaction of its own (see the lock order in common.live)


def advance_sweeps(*, now: datetime) -> None:
    """Bring the runs of every sweep to where the sweep wants them. One sweep's failure is not in the way of others."""
    unended = Q(trials__run__isnull=False) & ~Q(trials__run__status__in=ENDED)
    wanted = Sweep.objects.filter(Q(status=SweepStatus.RUNNING) | unended).distinct().order_by("pk")
    failures: list[Exception] = []
    for sweep in wanted.select_related("created_by", "project__team"):
        with apart(f"advancing sweep {sweep.pk}", failures.append):
            _advance(sweep, now=now)
    if failures:
        raise ExceptionGroup("some sweeps could not be advanced", failures)


def _advance(sweep: Sweep, *, now: datetime) -> None:
    plan = plan_of(sweep)
    trials = list(sweep.trials.select_related("run").order_by("number"))
    going = [trial for trial in trials if trial.run is not None and trial.run.status not in ENDED]
    match SweepStatus(sweep.status):
        case SweepStatus.CANCELLED:
            for trial in going:
                if not _ends_already(_run_of(trial)):
                    _try(partial(_cancel, by=f"sweep {sweep.name!r}", now=now), trial)
        case SweepStatus.PAUSED:
            for trial in going:
                if _run_of(trial).status in _MAY_REST:
                    _try(partial(_pause, trial=trial, now=now), trial)
        case SweepStatus.RUNNING:
            _go_on(sweep, plan, trials, going, now=now)


def _go_on(
    sweep: Sweep, plan: SweepPlan, trials: list[SweepTrial], going: list[SweepTrial], *, now: datetime
) -> None:
    for trial in going:
        run = _run_of(trial)
        if trial.rests and run.status == RunStatus.PAUSED:
            _try(partial(_resume, trial=trial, now=now), trial)
        why = to_be_stopped(plan, train_step=run.train_step, value=value_of(plan, trial))
        if why and run.status in (RunStatus.RUNNING, RunStatus.RECOVERING):
            _try(partial(_stop, why=why, now=now), trial)
    waiting = [trial for trial in trials if trial.run is None and not trial.skipped]
    if waiting and reached(plan, [value_of(plan, trial) for trial in trials]):
        _skip_rest(sweep, "the target was reached")
        waiting = []
    room = max(0, sweep.max_parallel - len(going))
    begun = [trial for trial in waiting[:room] if _begin(sweep, trial, now=now)]
    if not waiting and not going and not begun:
        with transaction.atomic():
            held = Sweep.objects.select_for_update().get(pk=sweep.pk)
            if held.status == SweepStatus.RUNNING:
                _move(held, SweepStatus.FINISHED, now=now)


_MAY_REST = (
    RunStatus.QUEUED, RunStatus.STARTING, RunStatus.RUNNING, RunStatus.RECOVERING,
)  # fmt: skip


def _try(act: Callable[[Run], object], trial: SweepTrial) -> None:
    """One act on one run, or nothing when the run has moved on meanwhile and the act does not fit it any more."""
    try:
        with transaction.atomic():
            act(_run_of(trial))
    except Problem as problem:
        if problem.status != 409:
            raise


def _ends_already(run: Run) -> bool:
    """Whether a cancel has nothing to do: the run was cancelled before, or comes to its own end."""
    return run.status == RunStatus.FINALIZING or run.reason == EndReason.CANCELLED_BY_USER


def _cancel(run: Run, *, by: str, now: datetime) -> None:
    if not _ends_already(lock_run(run.pk)):
        cancel_run(run.pk, by=by, now=now)


def _pause(run: Run, *, trial: SweepTrial, now: datetime) -> None:
    """The pause and the note that it was the sweep's, both or neither; the run's lock comes first."""
    if lock_run(run.pk).status in _MAY_REST:
        SweepTrial.objects.filter(pk=trial.pk).update(rests=True)
        pause_run(run.pk, now=now)


def _resume(run: Run, *, trial: SweepTrial, now: datetime) -> None:
    lock_run(run.pk)
    SweepTrial.objects.filter(pk=trial.pk).update(rests=False)
    resume_run(run.pk, now=now)


def _stop(run: Run, *, why: str, now: datetime) -> None:
    stopped = stop_run(run.pk, now=now)
    note(stopped, "sweep", f"stopped by its sweep: {why}", at=now)


def _run_of(trial: SweepTrial) -> Run:
    assert trial.run is not None
    return trial.run


def _begin(sweep: Sweep, trial: SweepTrial, *, now: datetime) -> bool:
    """Submit a trial's run as whoever made the sweep. False when the sweep has moved on, or this trial cannot begin."""
    caller = caller_in(sweep.created_by, sweep.project)
    with transaction.atomic():
        held = Sweep.objects.select_for_update().get(pk=sweep.pk)
        if held.status != SweepStatus.RUNNING:
            return False
        if caller is None or "runs:write" not in caller.scopes:
            message = f"{sweep.created_by.username} may not submit runs in this project any more"
            _skip_rest(held, message)
            _move(held, SweepStatus.FAILED, now=now, message=message)
            return False
        name = name_of(sweep.name, plan_of(sweep).in_order(trial.values))
        document = {**set_values(sweep.spec, trial.values), "name": name}
        try:
            with transaction.atomic():
                run = create_run(caller, document, now=now)
        except Problem as problem:  # what it names was there when the sweep was made, and is gone
            SweepTrial.objects.filter(pk=trial.pk).update(skipped=problem.detail[:400])
            return False
        run.tags = [f"sweep:{sweep.pk}"]
        run.save(update_fields=["tags"])
        said = f"trial {trial.number} of sweep {sweep.name!r}"
        note(run, "sweep", said, at=now, sweep=sweep.pk, values=trial.values)
        SweepTrial.objects.filter(pk=trial.pk).update(run=run)
    return True


def value_of(plan: SweepPlan, trial: SweepTrial) -> float | None:
    """The newest value of the objective in a trial's run."""
    value = trial.run.metrics.get(plan.objective.metric) if trial.run is not None else None
    return float(value) if isinstance(value, int | float) else None


def _skip_rest(sweep: Sweep, why: str) -> None:
    sweep.trials.filter(run=None, skipped="").update(skipped=why[:400])


def _move(sweep: Sweep, status: SweepStatus, *, now: datetime, message: str = "") -> None:
    sweep.status, sweep.message = status, message
    sweep.ended_at = None if status in LIVE else now
    sweep.save(update_fields=["status", "message", "ended_at"])
    _record(status.lower(), sweep, now=now)
    if status not in LIVE:
        told = {"sweep": {"id": sweep.pk, "name": sweep.name, "status": str(status)}, "message": message}
        outbox.emit(sweep.project_id, "sweep.finished", told, now=now)


def _ask(sweep_id: str, status: SweepStatus, *, now: datetime, message: str = "") -> Sweep:
    with transaction.atomic():
        sweep = Sweep.objects.select_for_update().get(pk=sweep_id)
        if sweep.status not in (*LIVE, status):
            raise conflict("has_ended", f"the sweep is {sweep.status} already", current_status=sweep.status)
        if sweep.status != status:
            _move(sweep, status, now=now, message=message)
    return sweep


def _read_plan(plan: Mapping[str, Any]) -> SweepPlan:
    try:
        return SweepPlan.model_validate(plan)
    except ValidationError as error:
        faults = [
            FieldError(fault.pointer, fault.code, fault.message) for fault in faults_of(error, SweepPlan)
        ]
        raise unprocessable(
            "sweep_invalid", f"{faults[0].pointer or '/'}: {faults[0].message}", faults
        ) from error


def _refuse_bad_points(caller: Caller, spec: Mapping[str, Any], points: list[dict[str, Any]]) -> None:
    faults: list[FieldError] = []
    for number, values in enumerate(points, start=1):
        document = {"name": "sweep", **set_values(spec, values)}
        said = f"point {number} ({name_of('', values).strip()})"
        faults += [
            FieldError(f"/spec{fault.pointer}", fault.code, f"{said}: {fault.message}")
            for fault in resolve_spec(caller, document).errors
        ]
        if len(faults) >= MOST_SHOWN:
            break
    if faults:
        raise unprocessable("sweep_invalid", faults[0].message, faults[:MOST_SHOWN])


def _record(verb: str, sweep: Sweep, *, now: datetime) -> None:
    audit_log.record(
        f"sweep.{verb}", target=("sweep", sweep.pk, sweep.name), project=sweep.project_id, at=now
    )
