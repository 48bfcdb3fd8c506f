"""Drafts: well-formed specs that are not submitted. They can be edited and may name things that do not exist yet."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from control_plane.accounts.identity.caller import Caller
from control_plane.core.api.errors import FieldError, conflict
from control_plane.fleet import services as fleet
from control_plane.runs.events import publish_run, record_event, transition_run
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Run
from control_plane.runs.spec_resolution import resolve_spec
from control_plane.runs.submission import (
    lock_inputs,
    record_audit,
    require_valid,
    run_columns,
    spec_columns,
)
from oolong.contracts.lifecycle import RunStatus
from oolong.contracts.run_spec import RunSpec, read_spec


def create_draft(caller: Caller, document: Any, *, now: datetime) -> Run:
    """Save a spec without submitting it. 422 with pointers when it is not well-formed."""
    spec = _well_formed(document)
    with transaction.atomic():
        run = Run.objects.create(
            project=caller.project, created_by=caller.user, status=RunStatus.DRAFT, status_at=now, created_at=now,
            spec=spec.model_dump(mode="json"), submitted_spec=document, **spec_columns(spec),
        )  # fmt: skip
        record_event(run, "created", f"drafted by {caller.user.username}", at=now)
        record_audit("create", run, now=now, message="as a draft")
        publish_run(run)
    return run


def edit_draft(run_id: str, document: Any, *, tags: list[str] | None, by: Caller, now: datetime) -> Run:
    """Replace a draft's spec. 409 when it was submitted."""
    spec = _well_formed(document)
    with transaction.atomic():
        run = _lock_draft(run_id)
        fields = {"spec": spec.model_dump(mode="json"), "submitted_spec": document, **spec_columns(spec)}
        if tags is not None:
            fields["tags"] = tags
        for name, value in fields.items():
            setattr(run, name, value)
        run.save(update_fields=list(fields))
        record_event(run, "edited", f"{by.user.username} changed the draft's spec", at=now)
        record_audit("edit", run, now=now)
        publish_run(run)
    return run


def submit_draft(caller: Caller, run_id: str, *, now: datetime) -> Run:
    """Resolve the draft's spec and queue the run. On 422, with pointers into the spec, it remains a draft."""
    with transaction.atomic():
        run = _lock_draft(run_id)
        resolved = resolve_spec(caller, run.spec)
        require_valid(resolved.errors)
        lock_inputs(resolved)
        # The position in the queue counts from the submission, not from the draft.
        transition_run(
            run, RunStatus.QUEUED, now=now, message=f"submitted by {caller.user.username}", created_at=now,
            **run_columns(resolved) | {"submitted_spec": run.submitted_spec},
        )  # fmt: skip
        run.functions.set(resolved.functions.values())
        record_audit("submit", run, now=now)
        fleet.publish_queue_change()
    return run


def delete_draft(run_id: str, *, now: datetime) -> None:
    """Delete a draft. 409 when it was submitted."""
    with transaction.atomic():
        run = _lock_draft(run_id)
        record_audit("delete", run, now=now)
        run.delete()


def _lock_draft(run_id: str) -> Any:
    run = lock_run(run_id)
    if run.status != RunStatus.DRAFT:
        raise conflict(
            "not_a_draft", f"the run is {run.status}, not a draft; clone it to start from its spec",
            current_status=run.status,
        )  # fmt: skip
    return run


def _well_formed(document: Any) -> RunSpec:
    read = read_spec(document)
    if isinstance(read, list):
        require_valid([FieldError(error.pointer, error.code, error.message) for error in read])
        raise AssertionError("the list of errors is never empty")
    return read
