"""An open agent session, made ready for an OpenAI client; and which refusals to open one pass by themselves."""

from __future__ import annotations

from oolong.client.errors import ServerError, TooManyRequests
from oolong.client.models import Session
from oolong.client.settings import ClientSettings

ASK_AGAIN_SECONDS = 1.0


def ready(session: Session, settings: ClientSettings) -> Session:
    """With the address and key that an OpenAI client takes as they are."""
    return session.model_copy(
        update={"base_url": f"{settings.url}{session.base_url}", "api_key": settings.token}
    )


def passes(error: TooManyRequests | ServerError) -> bool:
    return error.status in (429, 503)
