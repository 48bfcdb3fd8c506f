"""What a token may do, and what a role may do at most. A token's power is the intersection of the two."""

from __future__ import annotations

from control_plane.accounts.models import Role

SCOPES = (
    "runs:read", "runs:write", "runs:admin",
    "sessions:write",
    "datasets:read", "datasets:write",
    "models:read", "models:write",
    "functions:read", "functions:write",
    "checkpoints:read", "checkpoints:write", "checkpoints:admin",
    "pool:read", "pool:admin",
    "tokens:read", "tokens:write", "tokens:admin",
    "members:read", "members:write", "members:admin",
    "project:read", "project:admin",
    "audit:read",
    "secrets:read", "secrets:write",
    "webhooks:admin",
    "team:admin",
    "installation:admin",
)  # fmt: skip

# What a token may be given: a scope, all of an area, or all.
_AREAS = sorted({scope.partition(":")[0] for scope in SCOPES})
SCOPE_PATTERN = rf"^(\*|({'|'.join(_AREAS)}):\*|{'|'.join(SCOPES)})$"

_VIEWER = {scope for scope in SCOPES if scope.endswith(":read")} - {"audit:read"}
_VIEWER |= {"tokens:write", "members:write"}  # one's own tokens; leaving
_EDITOR = _VIEWER | {
    "runs:write", "sessions:write", "datasets:write", "models:write", "functions:write", "checkpoints:write",
}  # fmt: skip
_OPERATOR = _EDITOR | {"runs:admin", "checkpoints:admin"}
_ADMIN = _OPERATOR | {
    "tokens:admin",
    "members:admin",
    "project:admin",
    "audit:read",
    "secrets:write",
    "webhooks:admin",
}

ROLE_SCOPES: dict[str, frozenset[str]] = {
    Role.VIEWER: frozenset(_VIEWER),
    Role.EDITOR: frozenset(_EDITOR),
    Role.OPERATOR: frozenset(_OPERATOR),
    Role.ADMIN: frozenset(_ADMIN),
}
TEAM_ADMIN_SCOPES = frozenset({"team:admin"})  # the team itself, not one of its projects
POOL_ADMIN_SCOPES = frozenset({"pool:admin"})  # of the pools that the user was appointed to
INSTALLATION_SCOPES = frozenset({"installation:admin", "pool:admin"})  # and of every pool
RANK = {role: rank for rank, role in enumerate(ROLE_SCOPES)}


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


def known(scopes: list[str]) -> frozenset[str]:
    """What they stand for, without names that are none."""
    return expand(scopes) & frozenset(SCOPES)


def unknown(scopes: list[str]) -> list[str]:
    return [scope for scope in scopes if not expand([scope]) or not expand([scope]) <= set(SCOPES)]
