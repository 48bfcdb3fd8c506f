"""What a token may do, and what a role may do at most. A token's power is the intersection of the two."""

from __future__ import annotations

from control_plane.accounts.models import Role

SCOPES = (
    "runs:read", "runs:write",
    "sessions:write",
    "datasets:read", "datasets:write",
    "models:read", "models:write",
    "functions:read", "functions:write",
    "checkpoints:read", "checkpoints:write", "checkpoints:admin",
    "pool:read", "pool:admin",
    "tokens:read", "tokens:write",
    "project:read", "project:admin",
    "audit:read",
    "secrets:read", "secrets:write",
)  # fmt: skip

_OF_ADMINS = {scope for scope in SCOPES if scope.endswith(":admin")} | {"audit:read", "secrets:write"}
_READ = frozenset(scope for scope in SCOPES if scope.endswith(":read")) - _OF_ADMINS
ROLE_SCOPES: dict[str, frozenset[str]] = {
    Role.VIEWER: _READ | {"tokens:write"},
    Role.MEMBER: frozenset(SCOPES) - _OF_ADMINS,
    Role.ADMIN: frozenset(SCOPES),
}


def expand(scopes: list[str]) -> frozenset[str]:
    """`*` stands for all, `runs:*` for all of runs."""
    named: set[str] = set()
    for scope in scopes:
        if scope == "*":
            named.update(SCOPES)
        elif scope.endswith(":*"):
            named.update(known for known in SCOPES if known.startswith(scope[:-1]))
        else:
            named.add(scope)
    return frozenset(named)


def unknown(scopes: list[str]) -> list[str]:
    return [scope for scope in scopes if not expand([scope]) or not expand([scope]) <= set(SCOPES)]
