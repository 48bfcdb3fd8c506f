"""The doorkeeper of this service: its limits, and how it knows who knocks."""

from __future__ import annotations

from django.conf import settings

from control_plane.common.doorkeeper import App, Doorkeeper, Knock
from control_plane.common.rate_limits import Limiter
from control_plane.fleet.selectors import node_of_credential
from control_plane.telemetry.credentials import Credential, in_database


def guarded(app: App) -> App:
    environment = settings.ENVIRONMENT
    return Doorkeeper(
        app,
        limiter=Limiter(environment.redis_url, environment.rate_quotas),
        is_known=is_known,
        session_cookie=settings.SESSION_COOKIE_NAME,
    )


async def is_known(knock: Knock) -> bool:
    return await in_database(_is_known)(knock)


def _is_known(knock: Knock) -> bool:
    if knock.path.startswith("/api/v1/agent/"):
        return bool(knock.bearer) and node_of_credential(knock.bearer) is not None
    if not knock.credential:
        return False
    return Credential(token=knock.bearer, session="" if knock.bearer else knock.session).caller() is not None
