"""Agent sessions of a run: open one, talk to it with any OpenAI client, set its reward, end it."""

from __future__ import annotations

import time
from typing import Any

from oolong.client import models, sessions
from oolong.client.aio.connection import AsyncResource
from oolong.client.async_primitives import sleep
from oolong.client.errors import ServerError, TooManyRequests
from oolong.client.request_spec import drop_none, get, post, put


class AsyncSessions(AsyncResource):
    async def open(self, run_id: str, *, wait_seconds: float = 60.0) -> models.Session:
        """A member of a group of the run. While the admission gate is closed, or the run's node away, it asks again.

        Raises TooManyRequests or ServerError when that lasts for `wait_seconds`, and Gone when the run needs no
        more rollouts.
        """
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                # Without a key: a repeat after a lost answer would open a second session beside an abandoned one.
                opened = await self._send(post("runs/{}/sessions", models.Session, run_id, keyed=False))
                return sessions.ready(opened, self._connection.settings)
            except (TooManyRequests, ServerError) as error:
                if not sessions.passes(error) or time.monotonic() + sessions.ASK_AGAIN_SECONDS > deadline:
                    raise
            await sleep(sessions.ASK_AGAIN_SECONDS)

    async def get(self, session: models.Session) -> models.SessionState:
        return await self._send(get("runs/{}/sessions/{}", models.SessionState, session.run_id, session.id))

    async def set_reward(self, session: models.Session, reward: float) -> models.SessionState:
        """The worth of the whole session; the run's reward.scale and reward.bias are applied to it."""
        path, body = "runs/{}/sessions/{}/reward", {"reward": reward}
        return await self._send(put(path, models.SessionState, session.run_id, session.id, body=body))

    async def end(self, session: models.Session, *, reward: float | None = None) -> models.SessionState:
        """The session is over and has its reward."""
        return await self._end(session, drop_none({"reward": reward}))

    async def discard(self, session: models.Session) -> models.SessionState:
        """The agent failed: the session's group is dropped, which is not a reward of 0."""
        return await self._end(session, {"discard": True})

    async def _end(self, session: models.Session, body: dict[str, Any]) -> models.SessionState:
        path = "runs/{}/sessions/{}/end"
        request = post(path, models.SessionState, session.run_id, session.id, body=body, keyed=False)
        return await self._send(request)
