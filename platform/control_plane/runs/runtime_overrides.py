"""Runtime overrides of a running run: validated like a spec, merged into `run.live`, and sent to jobs by the agent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from django.db import transaction

from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.caller import Caller
from control_plane.core.api.errors import FieldError, conflict, unprocessable
from control_plane.fleet import services as fleet
from control_plane.runs import elastic_engines
from control_plane.runs.cloning import merge_patch
from control_plane.runs.events import publish_run, record_event
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Run
from control_plane.runs.selectors import live_attempt, nodes_of
from oolong.contracts.lifecycle import RunStatus
from oolong.contracts.run_spec import RunSpec, read_spec
from oolong.contracts.runtime_overrides import CHANGEABLE, RuntimeOverrides

_CHANGEABLE_STATUSES = (
    RunStatus.QUEUED, RunStatus.STARTING, RunStatus.RUNNING, RunStatus.RECOVERING, RunStatus.PAUSING, RunStatus.PAUSED,
)  # fmt: skip


def runtime_overrides(run: Run) -> RuntimeOverrides:
    return msgspec.convert(run.live, RuntimeOverrides)


def apply_overrides(
    run_id: str, *, changes: dict[str, Any], checkpoint: bool, evaluate: bool, by: Caller, now: datetime
) -> Run:
    """Merge the changes into the run's overrides. Its jobs apply them within seconds and report it as an event.

    422 for a field that cannot change or an invalid value; 409 when no job can apply the change.
    """
    given = dict(_leaves(changes))
    if not given and not checkpoint and not evaluate:
        raise unprocessable("invalid", "nothing to change: give changes, checkpoint or evaluate")
    with transaction.atomic():
        run = lock_run(run_id)
        given = _validated(run, given, evaluate=evaluate)
        if run.status not in _CHANGEABLE_STATUSES:
            raise conflict(
                "has_ended", f"the run is {run.status} and can no longer change",
                current_status=run.status,
            )  # fmt: skip
        if (checkpoint or evaluate) and run.status != RunStatus.RUNNING:
            raise conflict(
                "not_running", f"the run is {run.status}; a checkpoint or an evaluation needs its jobs RUNNING",
                current_status=run.status,
            )  # fmt: skip
        before = runtime_overrides(run)
        after = msgspec.structs.replace(
            before,
            revision=before.revision + 1,
            checkpoint_requests=before.checkpoint_requests + checkpoint,
            evaluation_requests=before.evaluation_requests + evaluate,
            **{CHANGEABLE[pointer]: value for pointer, value in given.items()},
        )
        run.live = msgspec.to_builtins(after)
        run.save(update_fields=["live"])
        summary = [f"{pointer[1:].replace('/', '.')}={value}" for pointer, value in given.items()]
        summary += ["a checkpoint now"] * checkpoint + ["an evaluation now"] * evaluate
        record_event(
            run, "change_asked", f"{by.user.username} requested {', '.join(summary)}", at=now,
            revision=after.revision, changes=changes,
        )  # fmt: skip
        audit_log.record(
            "run.change", target=("run", run.pk, run.name), project=run.project_id, message=", ".join(summary), at=now,
            data={"before": msgspec.to_builtins(before), "after": run.live},
        )  # fmt: skip
        publish_run(run)
        attempt = live_attempt(run)
        if "/rollout/engines" in given:
            elastic_engines.scale_engines(run, attempt, given["/rollout/engines"], now=now)
        if attempt is not None:
            fleet.notify_nodes(nodes_of(attempt))
    return run


def _validated(run: Run, given: dict[str, Any], *, evaluate: bool) -> dict[str, Any]:
    """The values, validated and coerced to the types of the spec's fields."""
    errors = [
        FieldError(
            f"/changes{pointer}",
            "not_changeable",
            f"{pointer[1:].replace('/', '.')} cannot change while a run is active (these can: "
            f"{', '.join(known[1:].replace('/', '.') for known in CHANGEABLE)}); clone the run with the change instead",
        )
        for pointer in given
        if pointer not in CHANGEABLE
    ]
    if run.kind != "rl":
        message = f"a run of kind {run.kind} has no fields that can change while it is active"
        errors.append(FieldError("", "not_changeable", message))
    elif evaluate and run.spec.get("evaluation") is None:
        message = "the run's spec has no evaluation section, so there is nothing to evaluate on"
        errors.append(FieldError("/evaluate", "no_evaluation", message))
    read = None
    if not errors:
        read = read_spec(merge_patch(run.spec, _nested(given)))
        if isinstance(read, list):
            errors = [FieldError(f"/changes{fault.pointer}", fault.code, fault.message) for fault in read]
        errors += [
            FieldError(f"/changes{pointer}", "required", "give a value, not null")
            for pointer, value in given.items()
            if value is None
        ]
    if errors:
        raise unprocessable("change_invalid", errors[0].message, errors)
    assert isinstance(read, RunSpec)
    typed = {}
    for pointer in given:
        section, field = pointer[1:].split("/")
        typed[pointer] = getattr(getattr(read, section), field)
    return typed


def _leaves(value: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{pointer}/{name}")
    else:
        yield pointer, value


def _nested(given: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for pointer, value in given.items():
        section, field = pointer[1:].split("/")
        document.setdefault(section, {})[field] = value
    return document
