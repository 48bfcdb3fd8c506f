"""Agent sessions of a run: open one, talk to it with any OpenAI client, set its reward, end it."""

from __future__ import annotations

import time

from oolong.client import endpoints, models, sessions
from oolong.client.aio.connection import AsyncConnection
from oolong.client.async_primitives import sleep
from oolong.client.errors import ServerError, TooManyRequests


class AsyncSessions:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def open(self, run_id: str, *, wait_seconds: float = 60.0) -> models.Session:
        """A member of a group of the run. While the admission gate is closed, or the run's node away, it asks again.

        Raises TooManyRequests or ServerError when that lasts for `wait_seconds`, and Gone when the run needs no
        more rollouts.
        """
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                return sessions.ready(
                    await self._connection.send(endpoints.sessions.open(run_id)), self._connection.settings
                )
            except (TooManyRequests, ServerError) as error:
                if not sessions.passes(error) or time.monotonic() + sessions.ASK_AGAIN_SECONDS > deadline:
                    raise
            await sleep(sessions.ASK_AGAIN_SECONDS)

    async def get(self, session: models.Session) -> models.SessionState:
        return await self._connection.send(endpoints.sessions.get(session.run_id, session.id))

    async def set_reward(self, session: models.Session, reward: float) -> models.SessionState:
        """The worth of the whole session; the run's reward.scale and reward.bias are applied to it."""
        return await self._connection.send(endpoints.sessions.set_reward(session.run_id, session.id, reward))

    async def end(self, session: models.Session, *, reward: float | None = None) -> models.SessionState:
        """The session is over and has its reward."""
        return await self._connection.send(endpoints.sessions.end(session.run_id, session.id, reward=reward))

    async def discard(self, session: models.Session) -> models.SessionState:
        """The agent failed: the session's group is dropped, which is not a reward of 0."""
        return await self._connection.send(endpoints.sessions.end(session.run_id, session.id, discard=True))
