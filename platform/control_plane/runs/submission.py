"""What people ask for: a new run, its end with a checkpoint, its place in the queue given up."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.caller import Caller
from control_plane.checkpoints.registry import hold_stored
from control_plane.core.api.errors import FieldError, Problem, conflict, unprocessable
from control_plane.fleet import services as fleet
from control_plane.fleet.scheduler import USUAL_PRIORITY
from control_plane.runs.attempt_status import may_move
from control_plane.runs.events import announce_run, move_run, note
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Run
from control_plane.runs.spec_resolution import Resolved, resolve_spec
from control_plane.runs.termination import (
    begin_cancel,
    begin_pause,
    begin_stop,
    force_end,
    hasten,
    rest,
    verdict_of,
)
from oolong.contracts.lifecycle import EndReason, RunStatus
from oolong.contracts.run_spec import RunSpec


def create_run(caller: Caller, document: Any, *, now: datetime) -> Run:
    """Check the spec, resolve what it names, and queue the run. 422 with pointers into the spec."""
    resolved = resolve_spec(caller, document)
    refuse_invalid(resolved.errors)
    return queue_resolved(caller, resolved, now=now)


def queue_resolved(caller: Caller, resolved: Resolved, *, now: datetime) -> Run:
    """A run of a spec without faults, in the queue."""
    with transaction.atomic():
        hold_initial(resolved)
        run = Run.objects.create(
            project=caller.project,
            created_by=caller.user,
            status_at=now,
            created_at=now,
            **columns_of(resolved),
        )
        run.functions.set(resolved.functions.values())
        note(run, "created", f"submitted by {caller.user.username}", at=now)
        record_act("create", run, now=now)
        announce_run(run)
        fleet.announce_queue()
    return run


def refuse_invalid(errors: list[FieldError]) -> None:
    """422 with every fault of a spec; nothing when there is none."""
    if errors:
        first = errors[0]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise unprocessable("spec_invalid", f"{first.pointer or '/'}: {first.message}{more}", errors)


def hold_initial(resolved: Resolved) -> None:
    """Keep the checkpoint that the run begins with from being freed while its row is made."""
    if resolved.initial_checkpoint is not None and not hold_stored(resolved.initial_checkpoint.pk):
        raise conflict(
            "deleted", f"checkpoint {resolved.initial_checkpoint.pk} was freed just now; take another"
        )


def columns_of(resolved: Resolved) -> dict[str, Any]:
    """What of a resolved spec stands in columns of its run."""
    spec = resolved.spec
    assert spec is not None
    return {
        **spec_columns(spec), "spec": resolved.document, "dataset_version": resolved.dataset_version,
        "evaluation_version": resolved.evaluation_version, "base_model": resolved.base_model,
        "initial_checkpoint": resolved.initial_checkpoint,
    }  # fmt: skip


def spec_columns(spec: RunSpec) -> dict[str, Any]:
    return {
        "name": spec.name, "kind": spec.kind, "notes": spec.notes, "priority": spec.placement.priority,
        "slots_needed": spec.slots_needed, "total_train_steps": _train_steps(spec),
    }  # fmt: skip


def _train_steps(spec: RunSpec) -> int:
    return {"rl": spec.trainer.total_train_steps, "sft": spec.sft.steps}.get(spec.kind, 0)


def update_run(run_id: str, fields: dict[str, Any], *, by: Caller, now: datetime) -> Run:
    """What people may say about a run at any time (name, notes, tags), and its priority while it has no slots."""
    with transaction.atomic():
        run = lock_run(run_id)
        refuse_draft(run, "edited so: change its spec")
        changed = {name: value for name, value in fields.items() if getattr(run, name) != value}
        if "priority" in changed and run.status not in (RunStatus.QUEUED, RunStatus.PAUSED):
            raise conflict(
                "not_waiting", f"the run is {run.status}; its priority matters only while it waits for slots",
                current_status=run.status,
            )  # fmt: skip
        if changed.get("priority", 0) > max(run.priority, USUAL_PRIORITY) and "runs:admin" not in by.scopes:
            message = f"a priority above {USUAL_PRIORITY} needs the scope runs:admin; ask an operator"
            raise Problem(403, "missing_scope", message)
        if not changed:
            return run
        for name, value in changed.items():
            setattr(run, name, value)
        run.save(update_fields=list(changed))
        said = ", ".join(
            name if name == "notes" else f"{name}={value!r}" for name, value in sorted(changed.items())
        )
        note(run, "edited", f"{by.user.username} changed {said}", at=now)
        record_act("edit", run, now=now, message=said)
        announce_run(run)
        if "priority" in changed:
            fleet.announce_queue()
    return run


def cancel_run(run_id: str, *, by: str, now: datetime) -> Run:
    """End a run without a last checkpoint: its jobs are asked to end, and killed a few seconds later.

    A run that is FINALIZING keeps its end, be it a cause or work that is done, and only comes to it sooner. Asking
    again changes nothing; 409 when the run has ended.
    """
    with transaction.atomic():
        run = lock_run(run_id)
        refuse_draft(run, "cancelled: delete it")
        refuse_ended(run)
        if run.status == RunStatus.FINALIZING:
            stays = f"{run.reason} stays its end" if run.reason else "its work is done already, and is kept"
            if hasten(run, f"{by} cancelled it; {stays}", now=now):
                record_act("cancel", run, now=now)
            return run
        if run.reason == EndReason.CANCELLED_BY_USER:
            return run
        record_act("cancel", run, now=now)
        if run.status in (RunStatus.QUEUED, RunStatus.PAUSED):
            _end_queued(run, now=now)
        else:
            begin_cancel(run, f"{by} cancelled it", now=now)
    return run


def force_stop_run(run_id: str, *, by: Caller, now: datetime) -> Run:
    """End a run at once, whatever its node does. Its attempt is fenced; its slots stay leased until the node says
    that the jobs are dead, or is known to have ended them. 409 when the run has ended."""
    with transaction.atomic():
        run = lock_run(run_id)
        refuse_draft(run, "stopped: delete it")
        refuse_ended(run)
        record_act("force_stop", run, now=now)
        if run.status in (RunStatus.QUEUED, RunStatus.PAUSED):
            _end_queued(run, now=now)
        else:
            force_end(run, f"{by.user.username} ended it at once", now=now)
    return run


def refuse_ended(run: Run) -> None:
    if run.has_ended:
        raise conflict("has_ended", f"the run is {run.status} already", current_status=run.status)


def refuse_draft(run: Run, how: str) -> None:
    if run.status == RunStatus.DRAFT:
        raise conflict("is_draft", f"a draft is not {how}, or submit it first", current_status=run.status)


def stop_run(run_id: str, *, now: datetime) -> Run:
    """Ask the run to take a checkpoint and stop. No effect on a run that is stopping or FINALIZING.

    Raises 409 when the run has ended.
    """
    with transaction.atomic():
        run = lock_run(run_id)
        refuse_draft(run, "stopped: delete it")
        if run.status in (RunStatus.STOPPING, RunStatus.FINALIZING):
            return run
        refuse_ended(run)
        record_act("stop", run, now=now)
        if run.status in (RunStatus.QUEUED, RunStatus.PAUSED):
            _end_queued(run, now=now)
            return run
        begin_stop(run, EndReason.STOPPED_BY_USER, "stop was asked for", now=now)
    return run


def pause_run(run_id: str, *, now: datetime) -> Run:
    """Ask for a checkpoint and for the slots back. Asking again changes nothing; 409 when there is nothing to pause."""
    with transaction.atomic():
        run = lock_run(run_id)
        if run.status in (RunStatus.PAUSING, RunStatus.PAUSED):
            return run
        if not may_move(run.status, RunStatus.PAUSED) and not may_move(run.status, RunStatus.PAUSING):
            raise conflict(
                "cannot_pause", f"the run is {run.status} and cannot be paused any more",
                current_status=run.status,
            )  # fmt: skip
        record_act("pause", run, now=now)
        if run.status == RunStatus.QUEUED:
            rest(run, now=now)
            fleet.announce_queue()
        else:
            begin_pause(run, now=now)
    return run


def resume_run(run_id: str, *, now: datetime) -> Run:
    """Put a paused run back into the queue, with its old place. 409 when it is not paused."""
    with transaction.atomic():
        run = lock_run(run_id)
        if run.status != RunStatus.PAUSED:
            advice = (
                "wait until it is PAUSED" if run.status == RunStatus.PAUSING else "only paused runs resume"
            )
            raise conflict(
                "not_paused", f"the run is {run.status}; {advice}"
                + ("; retry makes a new run that goes on from its checkpoint" if run.has_ended else ""),
                current_status=run.status,
            )  # fmt: skip
        record_act("resume", run, now=now)
        move_run(
            run, RunStatus.QUEUED, now=now, message="resumed; waits for slots", not_before=None,
            paused_seconds=run.paused_seconds + (now - run.status_at).total_seconds(),
            reason="", reason_message="", fault="",
        )  # fmt: skip
        fleet.announce_queue()
    return run


def record_act(verb: str, run: Run, *, now: datetime, message: str = "") -> None:
    """An entry of the audit log, in the transaction of what was done to the run, with the status it was in."""
    audit_log.record(
        f"run.{verb}", target=("run", run.pk, run.name), project=run.project_id, message=message, at=now,
        data={"status": run.status},
    )  # fmt: skip


def _end_queued(run: Run, *, now: datetime) -> None:
    reason = EndReason.CANCELLED_WHILE_QUEUED if run.attempt_number == 0 else EndReason.STOPPED_BY_USER
    message = "stopped while paused" if run.status == RunStatus.PAUSED else "taken out of the queue"
    move_run(run, RunStatus.STOPPED, now=now, message=message, **verdict_of(reason, ""))
    fleet.announce_queue()
