"""Agent sessions of a run: open one, talk to it with any OpenAI client, set its reward, end it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol, TypeVar

from oolong.client import calls, models
from oolong.client.calls import Call
from oolong.client.errors import ServerError, TooManyRequests
from oolong.client.settings import ClientSettings

T = TypeVar("T")

ASK_AGAIN_SECONDS = 1.0


class _Sender(Protocol):
    settings: ClientSettings

    def send(self, call: Call[T]) -> T: ...


class _AsyncSender(Protocol):
    settings: ClientSettings

    async def send(self, call: Call[T]) -> T: ...


class Sessions:
    def __init__(self, client: _Sender) -> None:
        self._client = client

    def open(self, run_id: str, *, wait_seconds: float = 60.0) -> models.Session:
        """A member of a group of the run. While the admission gate is closed, or the run's node away, it asks again.

        Raises TooManyRequests or ServerError when that lasts for `wait_seconds`, and Gone when the run needs no
        more rollouts.
        """
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                return ready(self._client.send(calls.open_session(run_id)), self._client.settings)
            except (TooManyRequests, ServerError) as error:
                if not _passes(error) or time.monotonic() + ASK_AGAIN_SECONDS > deadline:
                    raise
            time.sleep(ASK_AGAIN_SECONDS)

    def get(self, session: models.Session) -> models.SessionState:
        return self._client.send(calls.get_session(session.run_id, session.id))

    def set_reward(self, session: models.Session, reward: float) -> models.SessionState:
        """The worth of the whole session; the run's reward.scale and reward.bias are applied to it."""
        return self._client.send(calls.set_session_reward(session.run_id, session.id, reward))

    def end(self, session: models.Session, *, reward: float | None = None) -> models.SessionState:
        """The session is over and has its reward."""
        return self._client.send(calls.end_session(session.run_id, session.id, reward=reward))

    def discard(self, session: models.Session) -> models.SessionState:
        """The agent failed: the session's group is dropped, which is not a reward of 0."""
        return self._client.send(calls.end_session(session.run_id, session.id, discard=True))


class AsyncSessions:
    def __init__(self, client: _AsyncSender) -> None:
        self._client = client

    async def open(self, run_id: str, *, wait_seconds: float = 60.0) -> models.Session:
        """See Sessions.open."""
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                return ready(await self._client.send(calls.open_session(run_id)), self._client.settings)
            except (TooManyRequests, ServerError) as error:
                if not _passes(error) or time.monotonic() + ASK_AGAIN_SECONDS > deadline:
                    raise
            await asyncio.sleep(ASK_AGAIN_SECONDS)

    async def get(self, session: models.Session) -> models.SessionState:
        return await self._client.send(calls.get_session(session.run_id, session.id))

    async def set_reward(self, session: models.Session, reward: float) -> models.SessionState:
        """See Sessions.set_reward."""
        return await self._client.send(calls.set_session_reward(session.run_id, session.id, reward))

    async def end(self, session: models.Session, *, reward: float | None = None) -> models.SessionState:
        return await self._client.send(calls.end_session(session.run_id, session.id, reward=reward))

    async def discard(self, session: models.Session) -> models.SessionState:
        """See Sessions.discard."""
        return await self._client.send(calls.end_session(session.run_id, session.id, discard=True))


def ready(session: models.Session, settings: ClientSettings) -> models.Session:
    """With the address and key that an OpenAI client takes as they are."""
    return session.model_copy(
        update={"base_url": f"{settings.url}{session.base_url}", "api_key": settings.token}
    )


def _passes(error: TooManyRequests | ServerError) -> bool:
    return error.status in (429, 503)
