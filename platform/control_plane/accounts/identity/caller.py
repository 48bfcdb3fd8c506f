from __future__ import annotations

from dataclasses import dataclass

from rest_framework.request import Request

from control_plane.accounts.models import ApiToken, Project, User
from control_plane.core.api.errors import LOG_IN, Problem


@dataclass(frozen=True)
class Caller:
    """Who asks: every selector takes one, and what is not of its project does not exist for it."""

    user: User
    project: Project
    role: str
    scopes: frozenset[str]
    token: ApiToken | None = None  # None: a browser session

    @property
    def sorted_scopes(self) -> list[str]:
        return sorted(self.scopes)


def caller_of(request: Request) -> Caller:
    if not isinstance(request.auth, Caller):
        raise Problem(401, "not_authenticated", LOG_IN)
    return request.auth
