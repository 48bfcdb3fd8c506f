"""How a request says who it is: a bearer token, or a session cookie with CSRF protection.

A token is of one project. A browser's user may have several: the header X-Oolong-Project names one for a request,
`PUT /session/project` for the session; without either it is the oldest.
"""

from __future__ import annotations

from django.contrib.sessions.backends.base import SessionBase
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.request import Request

from control_plane.accounts import selectors
from control_plane.accounts.identity import services
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import User
from control_plane.accounts.tokens.token_hashing import TOKEN_PREFIX
from control_plane.core.api.errors import Problem, not_found
from control_plane.core.infra import clock
from control_plane.core.security.request_context import note_caller
from control_plane.core.security.request_gateway import PROJECT_HEADER

SESSION_PROJECT = "project"  # key in a session


def bearer(request: Request) -> str | None:
    kind, _, text = request.headers.get("Authorization", "").partition(" ")
    return text.strip() if kind.lower() == "bearer" and text else None


def note(caller: Caller) -> None:
    """Let the audit log know who this request is from."""
    kind = "service_account" if caller.user.service_of_id else "user"
    note_caller(
        kind=kind, identity=caller.user.pk, name=caller.user.username,
        token_id=caller.token.pk if caller.token else "", project_id=caller.project.pk,
    )  # fmt: skip


def session_caller(user: User, session: SessionBase, named: str = "") -> Caller | None:
    """Who a browser speaks for. What the session remembers may be gone; what is named must be there."""
    if named:
        return selectors.caller_of_user(user, named)
    remembered = session.get(SESSION_PROJECT, "")
    return (selectors.caller_of_user(user, remembered) if remembered else None) or selectors.caller_of_user(
        user
    )


class TokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, Caller] | None:
        text = bearer(request)
        if text is None:
            return None
        now = clock.now()
        caller = selectors.caller_of_token(text, now=now) if text.startswith(TOKEN_PREFIX) else None
        if caller is None or caller.token is None:
            raise exceptions.NotAuthenticated("the token is unknown, expired or revoked")
        if (named := request.headers.get(PROJECT_HEADER, caller.project.pk)) != caller.project.pk:
            message = (
                f"this token is of the project {caller.project.pk}, not {named!r}; use one of that project"
            )
            raise Problem(403, "token_bound", message)
        services.touch_last_used(caller.token, now=now)
        note(caller)
        return caller.user, caller

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class CallerSessionAuthentication(SessionAuthentication):
    def authenticate(self, request: Request) -> tuple[User, Caller] | None:  # type: ignore[override]
        found = super().authenticate(request)
        if found is None:
            return None
        user = found[0]
        assert isinstance(user, User)
        named = request.headers.get(PROJECT_HEADER, "")
        caller = session_caller(user, request._request.session, named)
        if caller is None and named:
            raise not_found("project", named)
        if caller is None:
            raise exceptions.NotAuthenticated(f"the user {user.username!r} is in no project")
        note(caller)
        return user, caller

    def enforce_csrf(self, request: Request) -> None:
        """Ask Django's own request: DRF's would parse the body to look for a form field, and uploads are raw bytes."""
        super().enforce_csrf(request._request)  # type: ignore[arg-type]


class TokenScheme(OpenApiAuthenticationExtension):
    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "ool_…"}


class SessionScheme(OpenApiAuthenticationExtension):
    target_class = CallerSessionAuthentication
    name = "session"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "oolong_session"}
