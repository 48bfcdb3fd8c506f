"""Who may read which topic of the live stream."""

from __future__ import annotations

from control_plane.accounts.caller import Caller
from control_plane.runs.models import Run


def readable_topic(caller: Caller, topic: str) -> str | None:
    """The topic as `live.publish` names it; None when there is none such for this caller."""
    if topic == "pool":
        return topic if "pool:read" in caller.scopes else None
    if "runs:read" not in caller.scopes:
        return None
    if topic == "runs":
        return f"runs:{caller.project.pk}"
    run_id = run_of_topic(topic)
    if run_id is None or not Run.objects.filter(project=caller.project, pk=run_id).exists():
        return None
    return topic


def run_of_topic(topic: str) -> str | None:
    """The run's id in `run:<id>` and `run:<id>:logs`."""
    match topic.split(":"):
        case ["run", run_id] | ["run", run_id, "logs"]:
            return run_id
        case _:
            return None
