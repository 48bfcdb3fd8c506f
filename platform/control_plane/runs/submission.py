"""Operations on runs that users request: submit, update, stop, cancel, pause, resume."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.caller import Caller
from control_plane.assets.functions.function_services import hold_versions
from control_plane.checkpoints.registry import hold_stored
from control_plane.core.api.errors import FieldError, conflict, unprocessable
from control_plane.fleet import services as fleet
from control_plane.runs.attempt_status import may_transition
from control_plane.runs.events import publish_run, record_event, transition_run
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Run
from control_plane.runs.priority_caps import priority_errors
from control_plane.runs.spec_resolution import Resolved, resolve_spec
from control_plane.runs.termination import (
    force_terminate,
    mark_paused,
    request_cancel,
    request_pause,
    request_stop,
    shorten_grace,
    termination_fields,
)
from oolong.contracts.lifecycle import EndReason, RunStatus
from oolong.contracts.run_spec import RunSpec


def create_run(caller: Caller, document: Any, *, now: datetime) -> Run:
    """Resolve the spec and queue a run. 422 with pointers into the spec."""
    resolved = resolve_spec(caller, document)
    require_valid(resolved.errors)
    return queue_resolved(caller, resolved, now=now)


def queue_resolved(caller: Caller, resolved: Resolved, *, now: datetime) -> Run:
    """Queue a run of a resolved spec without errors."""
    with transaction.atomic():
        lock_inputs(resolved)
        run = Run.objects.create(
            project=caller.project,
            created_by=caller.user,
            status_at=now,
            created_at=now,
            **run_columns(resolved),
        )
        run.functions.set(resolved.functions.values())
        record_event(run, "created", f"submitted by {caller.user.username}", at=now)
        record_audit("create", run, now=now)
        publish_run(run)
        fleet.publish_queue_change()
    return run


def require_valid(errors: list[FieldError]) -> None:
    """422 with all errors of a spec, if there are any."""
    if errors:
        first = errors[0]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise unprocessable("spec_invalid", f"{first.pointer or '/'}: {first.message}{more}", errors)


def lock_inputs(resolved: Resolved) -> None:
    """Lock the initial checkpoint and the functions, so that none is deleted before the run refers to it."""
    if resolved.initial_checkpoint is not None and not hold_stored(resolved.initial_checkpoint.pk):
        raise conflict(
            "deleted", f"checkpoint {resolved.initial_checkpoint.pk} was just deleted; use another"
        )
    if resolved.functions and not hold_versions(resolved.functions.values()):
        refs = ", ".join(sorted(version.ref for version in resolved.functions.values()))
        raise conflict("deleted", f"one of {refs} was just deleted; use another")


def run_columns(resolved: Resolved) -> dict[str, Any]:
    """Columns of a run that its resolved spec determines."""
    spec = resolved.spec
    assert spec is not None
    return {
        **spec_columns(spec), "spec": resolved.document, "submitted_spec": resolved.submitted,
        "dataset_version": resolved.dataset_version,
        "evaluation_version": resolved.evaluation_version, "base_model": resolved.base_model,
        "initial_checkpoint": resolved.initial_checkpoint,
    }  # fmt: skip


def spec_columns(spec: RunSpec) -> dict[str, Any]:
    return {
        "name": spec.name, "kind": spec.kind, "notes": spec.notes, "priority": spec.placement.priority,
        "slots_needed": spec.slots_needed, "total_train_steps": spec.optimizer_steps,
    }  # fmt: skip


def update_run(run_id: str, fields: dict[str, Any], *, by: Caller, now: datetime) -> Run:
    """Change name, notes and tags at any time, and the priority while the run has no slots."""
    with transaction.atomic():
        run = lock_run(run_id)
        require_submitted(run, "edited this way", "Update the spec")
        changed = {name: value for name, value in fields.items() if getattr(run, name) != value}
        if "priority" in changed and run.status not in (RunStatus.QUEUED, RunStatus.PAUSED):
            raise conflict(
                "not_waiting", f"the run is {run.status}; its priority can change only while it waits for slots",
                current_status=run.status,
            )  # fmt: skip
        if changed.get("priority", 0) > run.priority:  # anyone may lower a priority, also one above their cap
            errors = priority_errors(by, changed["priority"], "/priority")
            if errors:
                raise unprocessable("invalid", errors[0].message, errors)
        if not changed:
            return run
        for name, value in changed.items():
            setattr(run, name, value)
        run.save(update_fields=list(changed))
        summary = ", ".join(
            name if name == "notes" else f"{name}={value!r}" for name, value in sorted(changed.items())
        )
        record_event(run, "edited", f"{by.user.username} changed {summary}", at=now)
        record_audit("edit", run, now=now, message=summary)
        publish_run(run)
        if "priority" in changed:
            fleet.publish_queue_change()
    return run


def cancel_run(run_id: str, *, by: str, now: datetime) -> Run:
    """End a run without a last checkpoint: its jobs stop, and are killed a few seconds later.

    A FINALIZING run keeps its end reason and only ends sooner. Idempotent; 409 when the run has ended.
    """
    with transaction.atomic():
        run = lock_run(run_id)
        require_submitted(run, "canceled", "Delete it")
        require_active(run)
        if run.status == RunStatus.FINALIZING:
            remains = f"its end reason remains {run.reason}" if run.reason else "its work is done and remains"
            if shorten_grace(run, f"{by} canceled it; {remains}", now=now):
                record_audit("cancel", run, now=now)
            return run
        if run.reason == EndReason.CANCELLED_BY_USER:
            return run
        record_audit("cancel", run, now=now)
        if run.status in (RunStatus.QUEUED, RunStatus.PAUSED):
            _stop_queued(run, now=now)
        else:
            request_cancel(run, f"{by} canceled it", now=now)
    return run


def force_stop_run(run_id: str, *, by: Caller, now: datetime) -> Run:
    """End a run at once, whatever its node does. Its attempt is fenced; its slots stay leased until the node reports
    that the jobs are dead, or is LOST. 409 when the run has ended."""
    with transaction.atomic():
        run = lock_run(run_id)
        require_submitted(run, "stopped", "Delete it")
        require_active(run)
        record_audit("force_stop", run, now=now)
        if run.status in (RunStatus.QUEUED, RunStatus.PAUSED):
            _stop_queued(run, now=now)
        else:
            force_terminate(run, f"{by.user.username} force-stopped it", now=now)
    return run


def require_active(run: Run) -> None:
    if run.has_ended:
        raise conflict("has_ended", f"the run is already {run.status}", current_status=run.status)


def require_submitted(run: Run, action: str, alternative: str) -> None:
    """409 for a draft, with what to do instead of the action."""
    if run.status == RunStatus.DRAFT:
        message = f"Drafts cannot be {action}. {alternative}, or submit the draft."
        raise conflict("is_draft", message, current_status=run.status)


def stop_run(run_id: str, *, now: datetime) -> Run:
    """Stop a run after a checkpoint. No effect on a STOPPING or FINALIZING run; 409 when the run has ended."""
    with transaction.atomic():
        run = lock_run(run_id)
        require_submitted(run, "stopped", "Delete it")
        if run.status in (RunStatus.STOPPING, RunStatus.FINALIZING):
            return run
        require_active(run)
        record_audit("stop", run, now=now)
        if run.status in (RunStatus.QUEUED, RunStatus.PAUSED):
            _stop_queued(run, now=now)
            return run
        request_stop(run, EndReason.STOPPED_BY_USER, "stop was requested", now=now)
    return run


def pause_run(run_id: str, *, now: datetime) -> Run:
    """Pause a run after a checkpoint and release its slots. Idempotent; 409 when the run cannot pause."""
    with transaction.atomic():
        run = lock_run(run_id)
        if run.status in (RunStatus.PAUSING, RunStatus.PAUSED):
            return run
        if not may_transition(run.status, RunStatus.PAUSED) and not may_transition(
            run.status, RunStatus.PAUSING
        ):
            raise conflict(
                "cannot_pause", f"the run is {run.status} and can no longer be paused",
                current_status=run.status,
            )  # fmt: skip
        record_audit("pause", run, now=now)
        if run.status == RunStatus.QUEUED:
            mark_paused(run, now=now)
            fleet.publish_queue_change()
        else:
            request_pause(run, now=now)
    return run


def resume_run(run_id: str, *, now: datetime) -> Run:
    """Queue a paused run at its old position. 409 when it is not paused."""
    with transaction.atomic():
        run = lock_run(run_id)
        if run.status != RunStatus.PAUSED:
            advice = (
                "wait until it is PAUSED" if run.status == RunStatus.PAUSING else "only paused runs resume"
            )
            raise conflict(
                "not_paused", f"the run is {run.status}; {advice}"
                + ("; retry it to start a new run from its checkpoint" if run.has_ended else ""),
                current_status=run.status,
            )  # fmt: skip
        record_audit("resume", run, now=now)
        transition_run(
            run, RunStatus.QUEUED, now=now, message="resumed; waiting for slots", not_before=None,
            paused_seconds=run.paused_seconds + (now - run.status_at).total_seconds(),
            reason="", reason_message="", fault="",
        )  # fmt: skip
        fleet.publish_queue_change()
    return run


def record_audit(verb: str, run: Run, *, now: datetime, message: str = "") -> None:
    """Record an action on the run in the audit log, with its current status, in the action's transaction."""
    audit_log.record(
        f"run.{verb}", target=("run", run.pk, run.name), project=run.project_id, message=message, at=now,
        data={"status": run.status},
    )  # fmt: skip


def _stop_queued(run: Run, *, now: datetime) -> None:
    reason = EndReason.CANCELLED_WHILE_QUEUED if run.attempt_number == 0 else EndReason.STOPPED_BY_USER
    message = "stopped while paused" if run.status == RunStatus.PAUSED else "removed from the queue"
    transition_run(run, RunStatus.STOPPED, now=now, message=message, **termination_fields(reason, ""))
    fleet.publish_queue_change()
