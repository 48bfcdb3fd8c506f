"""Wrap the ASGI application in the request gateway: rate limits, and who may upload files."""

from __future__ import annotations

import tempfile

from django.conf import settings

from control_plane.assets.storage import store
from control_plane.core.api.errors import LOG_IN, Problem, not_found
from control_plane.core.security.rate_limits import Limiter
from control_plane.core.security.request_gateway import App, RequestGateway, RequestHead, SocketGate
from control_plane.fleet.selectors import node_of_credential
from control_plane.fleet.services import node_revoked_error
from control_plane.telemetry.stream.credentials import Credential, in_database

# What uploads and upload sessions are for.
FILE_SCOPES = frozenset({"datasets:write", "models:write"})


def wrap_http(app: App) -> App:
    environment = settings.ENVIRONMENT
    return RequestGateway(
        app,
        limiter=Limiter(environment.redis_url, environment.rate_quotas),
        authorize_upload=authorize_upload,
        session_cookie=settings.SESSION_COOKIE_NAME,
    )


def wrap_websockets(app: App) -> App:
    environment = settings.ENVIRONMENT
    limiter = Limiter(environment.redis_url, environment.rate_quotas)
    return SocketGate(app, limiter=limiter, session_cookie=settings.SESSION_COOKIE_NAME)


async def authorize_upload(knock: RequestHead) -> Problem | None:
    return await in_database(_authorize_upload)(knock)


def _authorize_upload(knock: RequestHead) -> Problem | None:
    """Files come from nodes and from callers with a scope of FILE_SCOPES; the view then requires the exact one."""
    if knock.path.startswith("/api/v1/agent/"):
        node = node_of_credential(knock.bearer) if knock.bearer else None
        if node is None:
            return _unknown()
        return node_revoked_error(node) if node.is_revoked else None
    if not knock.credential:
        return _unknown()
    # A token belongs to one project; the view rejects another one.
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


def set_upload_tempdir() -> None:
    """Buffer request bodies on the disk of the store: /tmp may be small. Django asks `tempfile` where to put them."""
    tempfile.tempdir = str(store.scratch_folder())
