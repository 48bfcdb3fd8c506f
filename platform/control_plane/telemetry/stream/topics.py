"""Who may read which topic of the live stream."""

from __future__ import annotations

from collections.abc import Mapping

from control_plane.accounts.identity.caller import Caller
from control_plane.runs.models import Run

# Topic, and the scope that it requires. `{run_id}` is a run of the caller's project.
TOPICS: Mapping[str, str] = {
    "pool": "pool:read",
    "runs": "runs:read",
    "run:{run_id}": "runs:read",
    "run:{run_id}:logs": "runs:read",
}


def readable_topic(caller: Caller, topic: str) -> str | None:
    """The topic as `live.publish` names it; None when there is none such for this caller."""
    form, run_id = _pattern_of(topic)
    if TOPICS.get(form) not in caller.scopes:
        return None
    if topic == "runs":
        return f"runs:{caller.project.pk}"
    if run_id is not None and not Run.objects.filter(project=caller.project, pk=run_id).exists():
        return None
    return topic


def run_of_topic(topic: str) -> str | None:
    """The run's id in `run:<id>` and `run:<id>:logs`."""
    return _pattern_of(topic)[1]


def _pattern_of(topic: str) -> tuple[str, str | None]:
    match topic.split(":"):
        case ["run", run_id, *rest]:
            return ":".join(("run", "{run_id}", *rest)), run_id
        case _:
            return topic, None
