"""Messages between web processes over Valkey pub/sub: at most once, in order per sender.

The tunnel uses it where a request reached another process than the one that holds the node's socket. Frame numbers
reveal a lost message, and a missing listener reveals a process that is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis.asyncio as valkey
from redis.exceptions import RedisError

from control_plane.core.infra.cancel_and_wait import cancel_and_wait

log = logging.getLogger(__name__)

RECONNECT_SECONDS = 1.0
CALL_SECONDS = 5.0
MAX_BATCH = 64

# As a script in Valkey: between a read and a write another process could register itself.
RENEW_SCRIPT = """
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return held end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return ARGV[1]
"""
RELEASE_SCRIPT = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"


class BusDown(Exception):
    """Valkey does not answer, so other processes cannot be reached."""


@dataclass(frozen=True)
class _Post:
    channel: str
    message: bytes
    on_undelivered: Callable[[], None]


class Bus:
    """One process's connection. `open` before anything else; handlers run on the event loop and must not block."""

    def __init__(self, url: str) -> None:
        self._client = valkey.Redis.from_url(
            url, socket_connect_timeout=CALL_SECONDS, socket_timeout=CALL_SECONDS
        )
        # A subscriber waits until a message comes, however long.
        self._listener = valkey.Redis.from_url(
            url, socket_connect_timeout=CALL_SECONDS, health_check_interval=10
        )
        self._handlers: dict[str, Callable[[bytes], None]] = {}
        self._pubsub: Any = None
        self._posts: deque[_Post] = deque()
        self._posted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def subscribe(self, channel: str, handler: Callable[[bytes], None]) -> None:
        """From now on, or from when Valkey is back, messages on the channel go to the handler."""
        self._handlers[channel] = handler
        if self._pubsub is not None:
            try:
                await self._pubsub.subscribe(channel)
            except (RedisError, OSError) as error:
                log.warning(
                    "relay: Valkey took no subscription (%s); it is made again with the connection", error
                )
        if not self._tasks:
            ready = asyncio.Event()
            self._tasks = [asyncio.create_task(self._listen(ready)), asyncio.create_task(self._send())]
            await ready.wait()

    async def unsubscribe(self, channel: str) -> None:
        self._handlers.pop(channel, None)
        if self._pubsub is not None:
            try:
                await self._pubsub.unsubscribe(channel)
            except (RedisError, OSError) as error:
                log.info("relay: Valkey is away, the subscription with it (%s)", error)

    async def publish(self, channel: str, message: bytes) -> int:
        """Publish now; return how many processes received it. Raises BusDown."""
        return int(await self._call(self._client.publish(channel, message)))

    def post(self, channel: str, message: bytes, *, on_undelivered: Callable[[], None]) -> None:
        """In order with other posts, soon; `on_undelivered` is called when nobody listens or Valkey is down."""
        self._posts.append(_Post(channel, message, on_undelivered))
        self._posted.set()

    async def listeners(self, channels: list[str]) -> dict[str, int]:
        """How many processes listen on each channel. Raises BusDown."""
        counts = await self._call(self._client.pubsub_numsub(*channels)) if channels else []
        return {name.decode(): int(count) for name, count in counts}

    async def put(self, key: str, value: str, *, seconds: int) -> None:
        await self._call(self._client.set(key, value, ex=seconds))

    async def get(self, key: str) -> str:
        """ "" when there is none."""
        found = await self._call(self._client.get(key))
        return found.decode() if found else ""

    async def renew(self, key: str, value: str, *, seconds: int) -> str:
        """Renew the key if it is free or has this value; return the value that it has now."""
        held: bytes = await self._call(self._client.eval(RENEW_SCRIPT, 1, key, value, str(seconds)))
        return held.decode()

    async def release(self, key: str, value: str) -> None:
        """Delete the key if it has this value."""
        await self._call(self._client.eval(RELEASE_SCRIPT, 1, key, value))

    async def close(self) -> None:
        await cancel_and_wait(self._tasks)
        self._tasks = []
        if self._pubsub is not None:
            await self._pubsub.aclose()
        await self._client.aclose()
        await self._listener.aclose()

    async def _call(self, call: Any) -> Any:
        try:
            return await call
        except (RedisError, OSError) as error:
            raise BusDown(f"Valkey does not answer: {error}") from error

    async def _listen(self, ready: asyncio.Event) -> None:
        while True:
            pubsub = self._pubsub = self._listener.pubsub(ignore_subscribe_messages=True)
            try:
                await pubsub.subscribe(*self._handlers)
                ready.set()
                async for message in pubsub.listen():
                    handler = self._handlers.get(message["channel"].decode())
                    if handler is not None:
                        handler(message["data"])
            except (RedisError, OSError) as error:
                log.warning("relay: Valkey is away (%s); only nodes of this process are reached", error)
                ready.set()
            finally:
                self._pubsub = None
                await pubsub.aclose()  # else its connection would stay behind at each reconnect
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _send(self) -> None:
        while True:
            await self._posted.wait()
            self._posted.clear()
            while self._posts:
                posts = [self._posts.popleft() for _ in range(min(len(self._posts), MAX_BATCH))]
                try:
                    async with self._client.pipeline(transaction=False) as pipeline:
                        for post in posts:
                            pipeline.publish(post.channel, post.message)
                        heard = await pipeline.execute()
                except (RedisError, OSError) as error:
                    log.warning("relay: %d messages were not sent: %s", len(posts), error)
                    heard = [0] * len(posts)
                for post, listeners in zip(posts, heard, strict=True):
                    if not listeners:
                        post.on_undelivered()
