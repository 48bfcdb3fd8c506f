"""The doorkeeper of this service: its limits, who may send files through it, and where they wait."""

from __future__ import annotations

import tempfile

from django.conf import settings

from control_plane.assets.storage import store
from control_plane.core.api.errors import LOG_IN, Problem, not_found
from control_plane.core.security.rate_limits import Limiter
from control_plane.core.security.request_gateway import App, Doorkeeper, Knock, SocketGate
from control_plane.fleet.selectors import node_of_credential
from control_plane.fleet.services import revoked
from control_plane.telemetry.stream.credentials import Credential, in_database

# What uploads and upload sessions are for.
FILE_SCOPES = frozenset({"datasets:write", "models:write"})


def guarded(app: App) -> App:
    environment = settings.ENVIRONMENT
    return Doorkeeper(
        app,
        limiter=Limiter(environment.redis_url, environment.rate_quotas),
        refusal_of=refusal_of,
        session_cookie=settings.SESSION_COOKIE_NAME,
    )


def guarded_sockets(app: App) -> App:
    environment = settings.ENVIRONMENT
    limiter = Limiter(environment.redis_url, environment.rate_quotas)
    return SocketGate(app, limiter=limiter, session_cookie=settings.SESSION_COOKIE_NAME)


async def refusal_of(knock: Knock) -> Problem | None:
    return await in_database(_refusal_of)(knock)


def _refusal_of(knock: Knock) -> Problem | None:
    """A file is taken from nodes, and from who may write what files are for; the view then asks for which of them."""
    if knock.path.startswith("/api/v1/agent/"):
        node = node_of_credential(knock.bearer) if knock.bearer else None
        if node is None:
            return _unknown()
        return revoked(node) if node.is_revoked else None
    if not knock.credential:
        return _unknown()
    # A token is of one project, whatever is named; the view says so.
    credential = (
        Credential(token=knock.bearer)
        if knock.bearer
        else Credential(session=knock.session, project=knock.project)
    )
    caller = credential.caller()
    if caller is None:
        elsewhere = credential.project and Credential(session=knock.session).caller() is not None
        return not_found("project", knock.project) if elsewhere else _unknown()
    if not FILE_SCOPES & caller.scopes:
        return Problem(
            403, "missing_scope", f"sending a file needs the scope {' or '.join(sorted(FILE_SCOPES))}"
        )
    return None


def _unknown() -> Problem:
    return Problem(401, "not_authenticated", LOG_IN, headers={"WWW-Authenticate": "Bearer"})


def keep_bodies_in_scratch() -> None:
    """Bodies wait on the store's own disk: /tmp may be small. Django asks nobody but `tempfile` where to put them."""
    tempfile.tempdir = str(store.scratch_folder())
