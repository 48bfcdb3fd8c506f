"""How a request says who it is: a bearer token, or a session cookie with CSRF protection."""

from __future__ import annotations

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.request import Request

from control_plane.accounts import selectors, services
from control_plane.accounts.caller import Caller
from control_plane.accounts.models import User
from control_plane.accounts.secrets import TOKEN_PREFIX
from control_plane.common import clock
from control_plane.common.origin import note_caller


def bearer(request: Request) -> str | None:
    kind, _, text = request.headers.get("Authorization", "").partition(" ")
    return text.strip() if kind.lower() == "bearer" and text else None


def note(caller: Caller) -> None:
    """Let the audit log know who this request is from."""
    note_caller(
        kind="user", identity=caller.user.pk, name=caller.user.username,
        token_id=caller.token.pk if caller.token else "", project_id=caller.project.pk,
    )  # fmt: skip


class TokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, Caller] | None:
        text = bearer(request)
        if text is None:
            return None
        now = clock.now()
        caller = selectors.caller_of_token(text, now=now) if text.startswith(TOKEN_PREFIX) else None
        if caller is None or caller.token is None:
            raise exceptions.NotAuthenticated("the token is unknown, expired or revoked")
        services.note_use(caller.token, now=now)
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
        caller = selectors.caller_of_user(user)
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
