"""New runs from existing ones: a clone starts over, a fork starts from a checkpoint's weights, a retry resumes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.db import transaction
from pydantic import ValidationError

from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.caller import Caller
from control_plane.checkpoints.models import Checkpoint
from control_plane.checkpoints.registry import hold_stored
from control_plane.core.api.errors import FieldError, conflict, unprocessable
from control_plane.runs import selectors
from control_plane.runs.events import record_event
from control_plane.runs.models import Run
from control_plane.runs.submission import create_run
from oolong.contracts.lifecycle import RunStatus
from oolong.contracts.model_faults import faults_of
from oolong.contracts.run_spec import RunSpec

Relation = Literal["clone", "fork", "retry"]


def clone_run(
    caller: Caller, parent: Run, *, changes: dict[str, Any], checkpoint: str = "", now: datetime
) -> Run:
    """A new run of the parent's resolved spec with `changes` merged in (RFC 7396: null restores a default).

    With `checkpoint` ("latest", or the ID of a stored one) it is a fork: it starts from those weights, with a fresh
    optimizer and data order. 422 with pointers into the merged spec.
    """
    document = merge_spec(parent.spec, changes)
    if checkpoint:
        found = selectors.newest_stored_checkpoint(parent) if checkpoint == "latest" else None
        if checkpoint == "latest" and found is None:
            message = (
                f"run {parent.name!r} has no stored checkpoint to fork from; leave checkpoint out to clone it"
            )
            raise unprocessable(
                "no_checkpoint", message, [FieldError("/checkpoint", "no_checkpoint", message)]
            )
        document["model"] = _from_checkpoint(document.get("model"), found.pk if found else checkpoint)
    with transaction.atomic():
        run = create_run(caller, document, now=now)
        if parent.submitted_spec is None:
            run.submitted_spec = None
        else:
            run.submitted_spec = merge_patch(parent.submitted_spec, changes)
            if checkpoint:
                run.submitted_spec["model"] = _from_checkpoint(
                    run.submitted_spec.get("model"), document["model"]["checkpoint"]
                )
        return _link_to_parent(run, parent, "fork" if checkpoint else "clone", now=now)


def retry_run(caller: Caller, parent: Run, *, now: datetime) -> Run:
    """A new run of the same spec that resumes from the parent's newest stored checkpoint: weights, optimizer, data
    cursor and buffered groups. Without a checkpoint it starts over. 409 while the parent is active or has succeeded."""
    if parent.status not in (RunStatus.FAILED, RunStatus.STOPPED):
        advice = "clone it instead" if parent.status == RunStatus.SUCCEEDED else "stop it first, or clone it"
        raise conflict(
            "not_retryable", f"the run is {parent.status}; retry is for failed and stopped runs: {advice}",
            current_status=parent.status,
        )  # fmt: skip
    checkpoint = selectors.resumable_checkpoint(parent)
    with transaction.atomic():
        if checkpoint is not None and not hold_stored(checkpoint.pk):
            raise conflict(
                "deleted",
                f"checkpoint {checkpoint.pk}, from which the run would resume, was deleted; clone the run instead",
            )
        run = create_run(caller, parent.spec, now=now)
        run.submitted_spec = parent.submitted_spec
        audit_log.record(
            "run.retry", target=("run", parent.pk, parent.name), project=parent.project_id, at=now,
            data={"new_run": run.pk},
        )  # fmt: skip
        return _link_to_parent(run, parent, "retry", checkpoint=checkpoint, now=now)


def _from_checkpoint(model: Any, checkpoint: str) -> dict[str, Any]:
    """The section `model` with these weights. What else it says, such as `lora`, stays."""
    kept = model if isinstance(model, dict) else {}
    return {**{name: value for name, value in kept.items() if name != "base_model"}, "checkpoint": checkpoint}


def merge_spec(spec: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`changes` merged into a RunSpec document. 422 for a null under a key that a RunSpec does not have: the merge
    removes it, so validation of the result cannot find it."""
    try:
        RunSpec.model_validate(changes)
    except ValidationError as error:
        raw = error.errors(include_url=False)
        errors = [
            FieldError(fault.pointer, fault.code, fault.message)
            for found, fault in zip(raw, faults_of(error, RunSpec), strict=True)
            if fault.code == "unknown_key" and found["input"] is None
        ]
        if errors:
            raise unprocessable(
                "spec_invalid", f"{errors[0].pointer}: {errors[0].message}", errors
            ) from error
    merged: dict[str, Any] = merge_patch(spec, changes)
    return merged


def merge_patch(target: Any, patch: Any) -> Any:
    """JSON Merge Patch (RFC 7396): members of `patch` replace, null removes, objects merge."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _link_to_parent(
    run: Run, parent: Run, relation: Relation, *, checkpoint: Checkpoint | None = None, now: datetime
) -> Run:
    run.parent, run.relation, run.tags, run.resume_checkpoint = parent, relation, parent.tags, checkpoint
    if relation == "retry":  # with its runtime overrides
        run.live = parent.live
    run.save(update_fields=["parent", "relation", "tags", "resume_checkpoint", "live", "submitted_spec"])
    origin = f", from step {checkpoint.step}" if checkpoint else ""
    record_event(
        run, "lineage", f"{relation} of {parent.name!r} ({parent.pk}){origin}", at=now, parent=parent.pk
    )
    return run
