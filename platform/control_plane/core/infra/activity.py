"""A mark in Valkey that something was changed through the API, so that the clock of ticks need not wait (`beat`)."""

from __future__ import annotations

import logging
import time
from functools import cache
from typing import Any

import redis
import redis.asyncio as valkey
from redis.exceptions import RedisError

log = logging.getLogger(__name__)

CHANGED_KEY = "oolong:changed"
LASTS_SECONDS = 30
MARK_EVERY_SECONDS = 1.0
CALL_SECONDS = 2.0
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# What nodes send all the time. What it leads to is seen in the database: attempts that live are work.
ROUTINE = ("/api/v1/agent/heartbeat", "/api/v1/agent/telemetry", "/api/v1/agent/jobs/")


class ChangeMark:
    """Sets the mark, at most once a second in a process."""

    def __init__(self, client: valkey.Redis) -> None:
        self._client = client
        self._again_at = 0.0

    async def note(self, *, method: str, path: str, status: int) -> None:
        if method in SAFE or status >= 400 or path.startswith(ROUTINE) or time.monotonic() < self._again_at:
            return
        self._again_at = time.monotonic() + MARK_EVERY_SECONDS
        try:
            await self._client.set(CHANGED_KEY, b"1", ex=LASTS_SECONDS)
        except (RedisError, OSError) as error:
            log.warning("cannot mark a change for the clock of ticks: %s", error)


def changed_lately(redis_url: str) -> bool:
    """True also when Valkey does not answer: then nobody knows."""
    try:
        return bool(_client(redis_url).exists(CHANGED_KEY))
    except (RedisError, OSError) as error:
        log.warning("cannot ask for changes, so every tick is sent: %s", error)
        return True


@cache
def _client(redis_url: str) -> Any:
    return redis.Redis.from_url(redis_url, socket_connect_timeout=CALL_SECONDS, socket_timeout=CALL_SECONDS)
