"""Changes a run's status: the only code that does. A guarded update and an event row in one transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control_plane.core.stream import event_stream
from control_plane.runs.attempt_status import may_transition
from control_plane.runs.models import Run, RunEvent
from control_plane.runs.serializers import EventSerializer, RunSerializer
from control_plane.webhooks import outbox
from oolong.contracts.lifecycle import ENDED, RunStatus

MAX_MESSAGE_LENGTH = 1000  # of a message in a webhook


class InvalidTransition(Exception):
    """The transition is not in lifecycle.RUN_TRANSITIONS."""


def record_event(
    run: Run, kind: str, message: str = "", *, at: datetime, attempt_number: int | None = None, **data: Any
) -> RunEvent:
    """Create an event row and publish it on the run's stream."""
    number = run.attempt_number if attempt_number is None else attempt_number
    event = RunEvent.objects.create(
        run=run, attempt_number=number, at=at, kind=kind, message=message, data=data
    )
    event_stream.publish(f"run:{run.pk}", "event", EventSerializer.render(event))
    return event


def transition_run(run: Run, status: RunStatus, *, now: datetime, message: str = "", **fields: Any) -> bool:
    """Change a run's status, unless it changed since the caller read it: then False.

    `fields` are columns to set in the same update. Raises InvalidTransition for one that is not in the table.
    """
    before = RunStatus(run.status)
    if not may_transition(before, status):
        raise InvalidTransition(f"run {run.pk}: {before} → {status} is not a valid transition")
    if status in ENDED:
        fields = {"ended_at": now, "progress": None, "pending_reason": "", "queue_position": None, **fields}
    fields = {"conditions": [], **fields, "status": status, "status_at": now}
    if not Run.objects.filter(pk=run.pk, status=before).update(**fields):
        return False
    for name, value in fields.items():
        setattr(run, name, value)
    record_event(run, "status", message, at=now, before=before, after=status)
    payload = {
        "run": run_summary(run),
        "before": before,
        "status": status,
        "message": message[:MAX_MESSAGE_LENGTH],
    }
    outbox.emit(run.project_id, f"run.{status.lower()}", payload, now=now)
    publish_run(run)
    return True


def run_summary(run: Run) -> dict[str, Any]:
    """A run in the payload of a webhook."""
    return {
        "id": run.pk, "name": run.name, "kind": run.kind, "status": str(run.status), "reason": str(run.reason),
        "reason_message": run.reason_message[:MAX_MESSAGE_LENGTH], "fault": str(run.fault), "tags": run.tags,
        "advice": run.advice,
        "attempt_number": run.attempt_number, "train_step": run.train_step,
    }  # fmt: skip


def publish_run(run: Run) -> None:
    item = RunSerializer.render(run)
    event_stream.publish(f"run:{run.pk}", "status", item)
    event_stream.publish(f"runs:{run.project_id}", "status", item)


def set_condition(run: Run, condition: str, holds: bool, *, now: datetime, message: str = "") -> None:
    """Add a condition to the run, or remove it. Other conditions stay."""
    if (condition in run.conditions) == holds:
        return
    others = [name for name in run.conditions if name != condition]
    run.conditions = sorted([*others, condition]) if holds else others
    run.save(update_fields=["conditions"])
    text = message or (condition if holds else f"{condition} is over")
    record_event(run, "conditions", text, at=now, conditions=run.conditions)
    publish_run(run)
