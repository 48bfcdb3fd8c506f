"""The one place where a run's status moves: a guarded update and an event row in the same transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control_plane.core.stream import event_stream
from control_plane.runs.attempt_status import may_move
from control_plane.runs.models import Run, RunEvent
from control_plane.runs.show import event_as_json, run_as_json
from control_plane.webhooks import outbox
from oolong.contracts.lifecycle import ENDED, OUTCOMES, EndReason, RunStatus

MOST_SAID = 1000  # characters of a message that webhooks carry


class RefusedMove(Exception):
    """The table of moves does not have this one."""


def note(
    run: Run, kind: str, message: str = "", *, at: datetime, attempt_number: int | None = None, **data: Any
) -> RunEvent:
    """Leave an event row and tell who watches."""
    number = run.attempt_number if attempt_number is None else attempt_number
    event = RunEvent.objects.create(
        run=run, attempt_number=number, at=at, kind=kind, message=message, data=data
    )
    event_stream.publish(f"run:{run.pk}", "event", event_as_json(event))
    return event


def move_run(run: Run, status: RunStatus, *, now: datetime, message: str = "", **fields: Any) -> bool:
    """Move a run's status, if it is still what the caller saw. False when somebody moved it before.

    `fields` are columns set together with it. Raises RefusedMove for a move that is not in the table.
    """
    before = RunStatus(run.status)
    if not may_move(before, status):
        raise RefusedMove(f"run {run.pk}: {before} → {status} is not a move")
    if status in ENDED:
        fields = {"ended_at": now, "progress": None, "pending_reason": "", "queue_position": None, **fields}
    fields = {"conditions": [], **fields, "status": status, "status_at": now}
    if not Run.objects.filter(pk=run.pk, status=before).update(**fields):
        return False
    for name, value in fields.items():
        setattr(run, name, value)
    note(run, "status", message, at=now, before=before, after=status)
    told = {"run": run_in_brief(run), "before": before, "status": status, "message": message[:MOST_SAID]}
    outbox.emit(run.project_id, f"run.{status.lower()}", told, now=now)
    announce_run(run)
    return True


def run_in_brief(run: Run) -> dict[str, Any]:
    """A run as webhooks show it; the rest is a GET away."""
    return {
        "id": run.pk, "name": run.name, "kind": run.kind, "status": str(run.status), "reason": str(run.reason),
        "reason_message": run.reason_message[:MOST_SAID], "fault": str(run.fault), "tags": run.tags,
        "advice": OUTCOMES[EndReason(run.reason)].advice if run.reason else "",
        "attempt_number": run.attempt_number, "train_step": run.train_step,
    }  # fmt: skip


def announce_run(run: Run) -> None:
    item = run_as_json(run)
    event_stream.publish(f"run:{run.pk}", "status", item)
    event_stream.publish(f"runs:{run.project_id}", "status", item)


def set_condition(run: Run, condition: str, holds: bool, *, now: datetime, message: str = "") -> None:
    """Add a condition to those shown beside the status, or take it away. The others stay."""
    if (condition in run.conditions) == holds:
        return
    others = [name for name in run.conditions if name != condition]
    run.conditions = sorted([*others, condition]) if holds else others
    run.save(update_fields=["conditions"])
    said = message or (condition if holds else f"{condition} is over")
    note(run, "conditions", said, at=now, conditions=run.conditions)
    announce_run(run)
