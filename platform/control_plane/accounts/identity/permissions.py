from __future__ import annotations

from typing import Any

from rest_framework import exceptions
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from control_plane.accounts.identity.caller import Caller


class HasScope(BasePermission):
    """The view names the scope per method: `scopes = {"GET": "runs:read", "POST": "runs:write"}`.

    A method without a scope is refused to everybody, so a forgotten line closes a door instead of opening it.
    `None` means: any caller who is known.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        if not isinstance(request.auth, Caller):
            return False
        method = "GET" if request.method in ("HEAD", "OPTIONS") else request.method
        scopes: dict[str, str | None] = getattr(view, "scopes", {})
        if method not in scopes:
            return method not in view.allowed_methods  # let the view answer 405
        needed = scopes[method]
        if needed is not None and needed not in request.auth.scopes:
            raise exceptions.PermissionDenied(
                f"this needs the scope {needed}; yours: {', '.join(sorted(request.auth.scopes)) or 'none'}",
                code="missing_scope",
            )
        return True
