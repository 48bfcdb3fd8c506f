"""The highest priority that a caller may give a run, by their role in the project."""

from __future__ import annotations

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import Role
from control_plane.core.api.errors import FieldError
from control_plane.fleet.fair_order import DEFAULT_PRIORITY

PRIORITY_CAPS: dict[str, int] = {
    Role.VIEWER: 0,  # submits no runs
    Role.EDITOR: DEFAULT_PRIORITY,
    Role.OPERATOR: 800,
    Role.ADMIN: 1000,
}


def priority_cap(caller: Caller) -> int:
    """The cap of the caller's role. A token without the scope runs:admin has at most the cap of an editor."""
    cap = PRIORITY_CAPS[caller.role]
    return cap if "runs:admin" in caller.scopes else min(cap, DEFAULT_PRIORITY)


def priority_errors(caller: Caller, priority: int, pointer: str) -> list[FieldError]:
    """The error for a priority above the caller's cap."""
    cap = priority_cap(caller)
    if priority <= cap:
        return []
    if priority <= PRIORITY_CAPS[caller.role]:
        message = (
            f"priority {priority} is above {cap}, the cap of a token without the scope runs:admin; use at most {cap}, "
            "or a token with that scope"
        )
    else:
        able = " or ".join(role for role, allowed in PRIORITY_CAPS.items() if allowed >= priority)
        message = (
            f"priority {priority} is above {cap}, the cap of the role {caller.role}; use at most {cap}, or ask an "
            f"{able} of the project to raise it"
        )
    return [FieldError(pointer, "priority_above_cap", message)]
