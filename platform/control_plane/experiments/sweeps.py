"""Sweeps: many runs of one spec, a few at a time, until all points ran, a target is reached, or a user ends it."""

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
from control_plane.core.infra.isolate_errors import isolate_errors
from control_plane.experiments.models import Sweep, SweepTrial
from control_plane.experiments.sweep_plan import (
    SweepPlan,
    set_values,
    stop_reason,
    target_reached,
    trial_name,
)
from control_plane.runs.events import record_event
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Run
from control_plane.runs.spec_resolution import resolve_spec
from control_plane.runs.submission import cancel_run, create_run, pause_run, resume_run, stop_run
from control_plane.webhooks import outbox
from oolong.contracts.lifecycle import ENDED, EndReason, RunStatus
from oolong.contracts.model_faults import faults_of

log = logging.getLogger(__name__)
MAX_ERRORS_SHOWN = 20  # errors in one response


class SweepStatus(StrEnum):
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FINISHED = "FINISHED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


ACTIVE = (SweepStatus.RUNNING, SweepStatus.PAUSED)


def sweeps(caller: Caller) -> QuerySet[Sweep]:
    return Sweep.objects.filter(project=caller.project).select_related("created_by", "project")


def sweep_for(caller: Caller, sweep_id: str) -> Sweep:
    return or_not_found(sweeps(caller).filter(pk=sweep_id).first(), "sweep", sweep_id)


def create_sweep(
    caller: Caller,
    *,
    name: str,
    spec: Mapping[str, Any],
    plan: Mapping[str, Any],
    max_parallel: int,
    now: datetime,
) -> Sweep:
    """Validate every point and create a sweep. 422 names the parameter, or the point and its field."""
    read = _read_plan(plan)
    points = read.points()
    _require_valid_points(caller, spec, points)
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
    """Pause the sweep; the next tick pauses its active runs. Idempotent; 409 when it has ended."""
    return _request_status(sweep_id, SweepStatus.PAUSED, now=now)


def resume_sweep(sweep_id: str, *, now: datetime) -> Sweep:
    return _request_status(sweep_id, SweepStatus.RUNNING, now=now)


def cancel_sweep(sweep_id: str, *, by: Caller, now: datetime) -> Sweep:
    """Cancel the sweep and, at the next tick, its active runs. Idempotent; 409 when it has ended otherwise."""
    with transaction.atomic():
        sweep = _request_status(
            sweep_id, SweepStatus.CANCELLED, now=now, message=f"canceled by {by.user.username}"
        )
        _skip_remaining(sweep, "the sweep was canceled")
    return sweep


# --- the tick: each run has a separate transaction (see the lock order in common.live)


def reconcile_sweeps(*, now: datetime) -> None:
    """Start, pause, resume, stop and cancel the runs of every sweep. Failures of sweeps are raised together at
    the end."""
    unended = Q(trials__run__isnull=False) & ~Q(trials__run__status__in=ENDED)
    sweeps_to_reconcile = (
        Sweep.objects.filter(Q(status=SweepStatus.RUNNING) | unended).distinct().order_by("pk")
    )
    failures: list[Exception] = []
    for sweep in sweeps_to_reconcile.select_related("created_by", "project__team"):
        with isolate_errors(f"reconciling sweep {sweep.pk}", failures.append):
            _reconcile(sweep, now=now)
    if failures:
        raise ExceptionGroup("some sweeps could not be reconciled", failures)


def _reconcile(sweep: Sweep, *, now: datetime) -> None:
    plan = sweep.parsed_plan
    trials = list(sweep.trials.select_related("run").order_by("number"))
    active = [trial for trial in trials if trial.run is not None and trial.run.status not in ENDED]
    match SweepStatus(sweep.status):
        case SweepStatus.CANCELLED:
            for trial in active:
                if not _is_ending(_run_of(trial)):
                    _apply_unless_conflict(partial(_cancel, by=f"sweep {sweep.name!r}", now=now), trial)
        case SweepStatus.PAUSED:
            for trial in active:
                if _run_of(trial).status in _PAUSABLE:
                    _apply_unless_conflict(partial(_pause, trial=trial, now=now), trial)
        case SweepStatus.RUNNING:
            _continue(sweep, plan, trials, active, now=now)


def _continue(
    sweep: Sweep, plan: SweepPlan, trials: list[SweepTrial], active: list[SweepTrial], *, now: datetime
) -> None:
    for trial in active:
        run = _run_of(trial)
        if trial.rests and run.status == RunStatus.PAUSED:
            _apply_unless_conflict(partial(_resume, trial=trial, now=now), trial)
        why = stop_reason(plan, train_step=run.train_step, value=trial.objective)
        if why and run.status in (RunStatus.RUNNING, RunStatus.RECOVERING):
            _apply_unless_conflict(partial(_stop, why=why, now=now), trial)
    waiting = [trial for trial in trials if trial.run is None and not trial.skipped]
    if waiting and target_reached(plan, [trial.objective for trial in trials]):
        _skip_remaining(sweep, "the target was reached")
        waiting = []
    capacity = max(0, sweep.max_parallel - len(active))
    started = [trial for trial in waiting[:capacity] if _start_trial(sweep, trial, now=now)]
    if not waiting and not active and not started:
        with transaction.atomic():
            locked = Sweep.objects.select_for_update().get(pk=sweep.pk)
            if locked.status == SweepStatus.RUNNING:
                _transition(locked, SweepStatus.FINISHED, now=now)


_PAUSABLE = (
    RunStatus.QUEUED, RunStatus.STARTING, RunStatus.RUNNING, RunStatus.RECOVERING,
)  # fmt: skip


def _apply_unless_conflict(action: Callable[[Run], object], trial: SweepTrial) -> None:
    """Apply an action to the trial's run, or nothing if the run's new status does not allow it (409)."""
    try:
        with transaction.atomic():
            action(_run_of(trial))
    except Problem as problem:
        if problem.status != 409:
            raise


def _is_ending(run: Run) -> bool:
    """Whether a cancel has nothing to do: the run is canceled already, or is finalizing."""
    return run.status == RunStatus.FINALIZING or run.reason == EndReason.CANCELLED_BY_USER


def _cancel(run: Run, *, by: str, now: datetime) -> None:
    if not _is_ending(lock_run(run.pk)):
        cancel_run(run.pk, by=by, now=now)


def _pause(run: Run, *, trial: SweepTrial, now: datetime) -> None:
    """Pause the run and mark it as paused by the sweep, in one transaction; locks the run first."""
    if lock_run(run.pk).status in _PAUSABLE:
        SweepTrial.objects.filter(pk=trial.pk).update(rests=True)
        pause_run(run.pk, now=now)


def _resume(run: Run, *, trial: SweepTrial, now: datetime) -> None:
    lock_run(run.pk)
    SweepTrial.objects.filter(pk=trial.pk).update(rests=False)
    resume_run(run.pk, now=now)


def _stop(run: Run, *, why: str, now: datetime) -> None:
    stopped = stop_run(run.pk, now=now)
    record_event(stopped, "sweep", f"stopped by its sweep: {why}", at=now)


def _run_of(trial: SweepTrial) -> Run:
    assert trial.run is not None
    return trial.run


def _start_trial(sweep: Sweep, trial: SweepTrial, *, now: datetime) -> bool:
    """Submit a trial's run as the user who created the sweep. False when the sweep is not running or the spec fails."""
    caller = caller_in(sweep.created_by, sweep.project)
    with transaction.atomic():
        locked = Sweep.objects.select_for_update().get(pk=sweep.pk)
        if locked.status != SweepStatus.RUNNING:
            return False
        if caller is None or "runs:write" not in caller.scopes:
            message = f"{sweep.created_by.username} may no longer submit runs in this project"
            _skip_remaining(locked, message)
            _transition(locked, SweepStatus.FAILED, now=now, message=message)
            return False
        name = trial_name(sweep.name, sweep.parsed_plan.in_order(trial.values))
        document = {**set_values(sweep.spec, trial.values), "name": name}
        try:
            with transaction.atomic():
                run = create_run(caller, document, now=now)
        except Problem as problem:  # what the spec names was deleted after the sweep was created
            SweepTrial.objects.filter(pk=trial.pk).update(skipped=problem.detail[:400])
            return False
        run.tags = [f"sweep:{sweep.pk}"]
        run.save(update_fields=["tags"])
        message = f"trial {trial.number} of sweep {sweep.name!r}"
        record_event(run, "sweep", message, at=now, sweep=sweep.pk, values=trial.values)
        SweepTrial.objects.filter(pk=trial.pk).update(run=run)
    return True


def _skip_remaining(sweep: Sweep, why: str) -> None:
    sweep.trials.filter(run=None, skipped="").update(skipped=why[:400])


def _transition(sweep: Sweep, status: SweepStatus, *, now: datetime, message: str = "") -> None:
    sweep.status, sweep.message = status, message
    sweep.ended_at = None if status in ACTIVE else now
    sweep.save(update_fields=["status", "message", "ended_at"])
    _record(status.lower(), sweep, now=now)
    if status not in ACTIVE:
        payload = {"sweep": {"id": sweep.pk, "name": sweep.name, "status": str(status)}, "message": message}
        outbox.emit(sweep.project_id, "sweep.finished", payload, now=now)


def _request_status(sweep_id: str, status: SweepStatus, *, now: datetime, message: str = "") -> Sweep:
    with transaction.atomic():
        sweep = Sweep.objects.select_for_update().get(pk=sweep_id)
        if sweep.status not in (*ACTIVE, status):
            raise conflict("has_ended", f"the sweep is already {sweep.status}", current_status=sweep.status)
        if sweep.status != status:
            _transition(sweep, status, now=now, message=message)
    return sweep


def _read_plan(plan: Mapping[str, Any]) -> SweepPlan:
    try:
        return SweepPlan.model_validate(plan)
    except ValidationError as error:
        errors = [
            FieldError(fault.pointer, fault.code, fault.message) for fault in faults_of(error, SweepPlan)
        ]
        raise unprocessable(
            "sweep_invalid", f"{errors[0].pointer or '/'}: {errors[0].message}", errors
        ) from error


def _require_valid_points(caller: Caller, spec: Mapping[str, Any], points: list[dict[str, Any]]) -> None:
    errors: list[FieldError] = []
    for number, values in enumerate(points, start=1):
        document = {"name": "sweep", **set_values(spec, values)}
        label = f"point {number} ({trial_name('', values).strip()})"
        errors += [
            FieldError(f"/spec{fault.pointer}", fault.code, f"{label}: {fault.message}")
            for fault in resolve_spec(caller, document).errors
        ]
        if len(errors) >= MAX_ERRORS_SHOWN:
            break
    if errors:
        raise unprocessable("sweep_invalid", errors[0].message, errors[:MAX_ERRORS_SHOWN])


def _record(verb: str, sweep: Sweep, *, now: datetime) -> None:
    audit_log.record(
        f"sweep.{verb}", target=("sweep", sweep.pk, sweep.name), project=sweep.project_id, at=now
    )
