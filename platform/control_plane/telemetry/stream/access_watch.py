"""Wake the open streams of a user whose token, role or session changed, so that they authorize again.

One subscription per process, to the topic of `accounts.identity.access_events`, from the first open stream to the last.
Each stream also rechecks slowly by itself, which covers changes that are missed while the database is unreachable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from weakref import WeakKeyDictionary

import msgspec
import psycopg

from control_plane.accounts.identity.access_events import TOPIC
from control_plane.core.stream.event_hub import Frame, SubscriberQueue, hub

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0


class AccessWatch:
    def __init__(self) -> None:
        self._streams: dict[str, list[Callable[[], None]]] = {}  # by user
        self._task: asyncio.Task[None] | None = None

    def follow(self, user_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever the access of this user may have changed; return a function that stops it."""
        self._streams.setdefault(user_id, []).append(wake)
        if self._task is None:
            self._task = asyncio.create_task(self._listen())

        def leave() -> None:
            followers = self._streams.get(user_id, [])
            if wake in followers:
                followers.remove(wake)
            if not followers:
                self._streams.pop(user_id, None)
            if not self._streams and self._task is not None:
                self._task.cancel()
                self._task = None

        return leave

    async def _listen(self) -> None:
        while True:
            mailbox = SubscriberQueue()
            try:
                await hub().subscribe(mailbox, TOPIC)
                self._wake(None)  # what came before the subscription is not known
                while True:
                    for frame, _ in await mailbox.take():
                        if frame is not None:
                            self._wake(_user_of(frame))
            except psycopg.Error as error:
                log.warning("access changes are not received (%s); next try in %s s", error, RETRY_SECONDS)
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                hub().leave(mailbox)

    def _wake(self, user_id: str | None) -> None:
        """One user's streams, or everybody's."""
        chosen = list(self._streams) if user_id is None else [user_id]
        for name in chosen:
            for wake in list(self._streams.get(name, [])):
                wake()


def _user_of(frame: Frame) -> str | None:
    """None for a gap: it may have been anybody."""
    data = msgspec.json.decode(frame.text)["data"]
    return data.get("user") if frame.type == "event" else None


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, AccessWatch] = WeakKeyDictionary()


def access_watch() -> AccessWatch:
    """The one of the running event loop."""
    return _watches.setdefault(asyncio.get_running_loop(), AccessWatch())


async def wait_for_wakeup(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event came within the time; clears it."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
