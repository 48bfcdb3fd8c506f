"""What people ask for: a new run, its end with a checkpoint, its place in the queue given up."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from control_plane.accounts.caller import Caller
from control_plane.common.errors import conflict, unprocessable
from control_plane.fleet import services as fleet
from control_plane.runs.ending import begin_stop, verdict_of
from control_plane.runs.events import announce_run, move_run, note
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Run
from control_plane.runs.resolve import resolve_spec
from oolong.contracts.lifecycle import EndReason, RunStatus


def create_run(caller: Caller, document: Any, *, now: datetime) -> Run:
    """Check the spec, resolve what it names, and queue the run. 422 with pointers into the spec."""
    resolved = resolve_spec(caller, document)
    if resolved.errors:
        first = resolved.errors[0]
        more = f" (and {len(resolved.errors) - 1} more)" if len(resolved.errors) > 1 else ""
        raise unprocessable("spec_invalid", f"{first.pointer or '/'}: {first.message}{more}", resolved.errors)
    spec = resolved.spec
    assert spec is not None and resolved.dataset_version is not None
    with transaction.atomic():
        run = Run.objects.create(
            project=caller.project, created_by=caller.user, name=spec.name, kind=spec.kind,
            spec=resolved.document, dataset_version=resolved.dataset_version,
            evaluation_version=resolved.evaluation_version, base_model=resolved.base_model,
            initial_checkpoint=resolved.initial_checkpoint, notes=spec.notes, status_at=now, created_at=now,
            priority=spec.placement.priority, slots_needed=spec.slots_needed,
            total_train_steps=spec.sft.steps if spec.kind == "sft" else spec.trainer.total_train_steps,
        )  # fmt: skip
        run.functions.set(resolved.functions.values())
        note(run, "created", f"submitted by {caller.user.username}", at=now)
        announce_run(run)
        fleet.announce_queue()
    return run


def cancel_run(run_id: str, *, now: datetime) -> Run:
    """Take a run out of the queue. 409 when it is not in it."""
    with transaction.atomic():
        run = lock_run(run_id)
        if run.status != RunStatus.QUEUED:
            raise conflict(
                "not_queued",
                f"the run is {run.status}; cancel is for queued runs, "
                + ("and this one has ended" if run.has_ended else "use stop"),
                current_status=run.status,
            )
        _end_queued(run, now=now)
    return run


def stop_run(run_id: str, *, now: datetime) -> Run:
    """Ask for an end with a checkpoint. Asking again changes nothing; 409 when the run has ended."""
    with transaction.atomic():
        run = lock_run(run_id)
        if run.status == RunStatus.STOPPING:
            return run
        if run.has_ended:
            raise conflict("has_ended", f"the run is {run.status} already", current_status=run.status)
        if run.status == RunStatus.QUEUED:
            _end_queued(run, now=now)
            return run
        begin_stop(run, EndReason.STOPPED_BY_USER, "stop was asked for", now=now)
    return run


def _end_queued(run: Run, *, now: datetime) -> None:
    reason = EndReason.CANCELLED_WHILE_QUEUED if run.attempt_number == 0 else EndReason.STOPPED_BY_USER
    move_run(run, RunStatus.STOPPED, now=now, message="taken out of the queue", **verdict_of(reason, ""))
    fleet.announce_queue()
