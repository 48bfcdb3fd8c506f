"""Runs that are not submitted yet: a well-formed spec that may still be edited, and may name what is not there yet."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from control_plane.accounts.identity.caller import Caller
from control_plane.core.api.errors import FieldError, conflict
from control_plane.fleet import services as fleet
from control_plane.runs.events import announce_run, move_run, note
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Run
from control_plane.runs.spec_resolution import resolve_spec
from control_plane.runs.submission import columns_of, hold_initial, record_act, refuse_invalid, spec_columns
from oolong.contracts.lifecycle import RunStatus
from oolong.contracts.run_spec import RunSpec, read_spec


def create_draft(caller: Caller, document: Any, *, now: datetime) -> Run:
    """Keep a spec without submitting it. 422 with pointers when it is not well-formed."""
    spec = _well_formed(document)
    with transaction.atomic():
        run = Run.objects.create(
            project=caller.project, created_by=caller.user, status=RunStatus.DRAFT, status_at=now, created_at=now,
            spec=spec.model_dump(mode="json"), **spec_columns(spec),
        )  # fmt: skip
        note(run, "created", f"drafted by {caller.user.username}", at=now)
        record_act("create", run, now=now, message="as a draft")
        announce_run(run)
    return run


def edit_draft(run_id: str, document: Any, *, tags: list[str] | None, by: Caller, now: datetime) -> Run:
    """Replace a draft's spec. 409 when it was submitted."""
    spec = _well_formed(document)
    with transaction.atomic():
        run = _draft(run_id)
        fields = {"spec": spec.model_dump(mode="json"), **spec_columns(spec)}
        if tags is not None:
            fields["tags"] = tags
        for name, value in fields.items():
            setattr(run, name, value)
        run.save(update_fields=list(fields))
        note(run, "edited", f"{by.user.username} changed the draft's spec", at=now)
        record_act("edit", run, now=now)
        announce_run(run)
    return run


def submit_draft(caller: Caller, run_id: str, *, now: datetime) -> Run:
    """Look up what the draft names, and queue it. 422 with pointers into its spec; it then stays a draft."""
    with transaction.atomic():
        run = _draft(run_id)
        resolved = resolve_spec(caller, run.spec)
        refuse_invalid(resolved.errors)
        hold_initial(resolved)
        # Who was drafted long ago has waited for nothing: the place in the queue counts from now.
        move_run(
            run, RunStatus.QUEUED, now=now, message=f"submitted by {caller.user.username}", created_at=now,
            **columns_of(resolved),
        )  # fmt: skip
        run.functions.set(resolved.functions.values())
        record_act("submit", run, now=now)
        fleet.announce_queue()
    return run


def delete_draft(run_id: str, *, now: datetime) -> None:
    """Nothing of it ever ran, so nothing stays. 409 when it was submitted."""
    with transaction.atomic():
        run = _draft(run_id)
        record_act("delete", run, now=now)
        run.delete()


def _draft(run_id: str) -> Any:
    run = lock_run(run_id)
    if run.status != RunStatus.DRAFT:
        raise conflict(
            "not_a_draft", f"the run is {run.status}, no draft any more; clone it to begin from its spec",
            current_status=run.status,
        )  # fmt: skip
    return run


def _well_formed(document: Any) -> RunSpec:
    read = read_spec(document)
    if isinstance(read, list):
        refuse_invalid([FieldError(fault.pointer, fault.code, fault.message) for fault in read])
        raise AssertionError("a list of faults is never empty")
    return read
