"""The live stream's reading side: one hub per process and event loop, however many sockets there are.

PostgreSQL tells the hub which topic moved (LISTEN); the hub reads the new frames of that topic once and puts
them into the mailbox of every subscriber. Who comes with an old number is replayed from the stored frames
first and joins the live feed at exactly the number where the replay ends. Without LISTEN the hub asks every
two seconds instead.

A mailbox is bounded per topic. When its reader is too slow, older frames that a newer one replaces go first;
if that is not enough the rest becomes one `gap` frame with the numbers that were left out. So readers never
wait for each other, and nothing is lost in silence: who sees a gap fetches those data from the REST API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import psycopg
from django.db import connection

from control_plane.core.infra import metrics
from control_plane.core.infra.cancel_and_wait import cancel_and_wait
from control_plane.core.infra.database import connect_parameters
from control_plane.core.stream.event_stream import CHANNEL

logger = logging.getLogger(__name__)

FRAMES_PER_TOPIC = 1000  # that one mailbox holds of one topic
FRAMES_PER_READ = 500
POLL_SECONDS = 2.0  # while LISTEN is lost
CHECK_SECONDS = 10.0  # a dead LISTEN connection is noticed this late at most
RECONNECT_SECONDS = (0.2, 1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Frame:
    topic: str
    seq: int
    type: str
    text: str  # the whole frame as JSON, encoded once for all its readers
    first: int  # of a gap: the first number left out; otherwise seq
    replaces: str = ""


@dataclass(eq=False)
class Subscription:
    """One topic of one mailbox. `live` means: it has had everything that the feed has."""

    feed: TopicFeed
    mailbox: SubscriberQueue
    position: int  # the last number that went into the mailbox
    live: bool = False
    waiting: dict[int, Frame] = field(default_factory=dict)  # by seq, ascending
    newest: dict[str, int] = field(default_factory=dict)  # `replaces` -> seq of the waiting frame
    replay: asyncio.Task[None] | None = None

    def put(self, frame: Frame) -> None:
        self.position = frame.seq
        if frame.replaces:
            self.waiting.pop(self.newest.get(frame.replaces, -1), None)
            self.newest[frame.replaces] = frame.seq
        self.waiting[frame.seq] = frame
        if len(self.waiting) > self.mailbox.frames_per_topic:
            self._shrink_to_gap()
        self.mailbox.filled.set()

    def _shrink_to_gap(self) -> None:
        lost = [frame for frame in self.waiting.values() if not frame.replaces]
        if not lost:
            return
        metrics.DROPPED_FRAMES.inc(sum(frame.type != "gap" for frame in lost))
        left_out = gap(self.feed.topic, lost[0].first, lost[-1].seq)
        kept = [frame for frame in self.waiting.values() if frame.replaces]
        self.waiting = {frame.seq: frame for frame in sorted([*kept, left_out], key=lambda frame: frame.seq)}

    def take(self) -> list[Frame]:
        frames = list(self.waiting.values())
        self.waiting.clear()
        self.newest.clear()
        return frames


@dataclass(eq=False)
class TopicFeed:
    """A topic that somebody of this process reads, and the last number handed to its live subscribers."""

    topic: str
    last: int | None = None  # None until the first subscriber has read where the topic stands
    wanted: int = 0
    subscriptions: set[Subscription] = field(default_factory=set)
    reading: asyncio.Task[None] | None = None


class SubscriberQueue:
    """What one socket has still to send. Filled by the hub, emptied by the socket's own task."""

    def __init__(self, frames_per_topic: int = FRAMES_PER_TOPIC) -> None:
        self.frames_per_topic = frames_per_topic
        self.subscriptions: dict[str, Subscription] = {}
        self.filled = asyncio.Event()
        self.emptied = asyncio.Event()
        self._notices: list[str] = []

    def put_notice(self, text: str) -> None:
        """Queue a message that has no number (subscribed, ping, error), ahead of waiting frames."""
        self._notices.append(text)
        self.filled.set()

    async def take(self) -> list[tuple[Frame | None, str]]:
        """Wait until there is something, then everything: (frame, or None for a notice; JSON text)."""
        await self.filled.wait()
        self.filled.clear()
        taken: list[tuple[Frame | None, str]] = [(None, text) for text in self._notices]
        self._notices = []
        for subscription in self.subscriptions.values():
            taken += ((frame, frame.text) for frame in subscription.take())
        self.emptied.set()
        return taken


class EventHub:
    def __init__(self, connect: dict[str, Any]) -> None:
        self._connect = connect
        self._feeds: dict[str, TopicFeed] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._listening = asyncio.Event()
        self._reader: psycopg.AsyncConnection[Any] | None = None
        self._reader_lock = asyncio.Lock()

    async def subscribe(self, mailbox: SubscriberQueue, topic: str, after_seq: int | None = None) -> int:
        """Feed a topic into a mailbox: the frames after `after_seq` (None: only new ones), then live.

        The first message of the topic is `subscribed` with the current number, which is returned. Subscribing
        again starts over from the new `after_seq`. Raises psycopg.OperationalError without a database.
        """
        self._start()
        self.unsubscribe(mailbox, topic)
        # Registered before the number is read: a notification that comes in between finds its feed.
        feed = self._feeds.setdefault(topic, TopicFeed(topic=topic))
        subscription = Subscription(feed=feed, mailbox=mailbox, position=0)
        feed.subscriptions.add(subscription)
        mailbox.subscriptions[topic] = subscription
        try:
            stored = (await self._numbers([topic])).get(topic, 0)
        except BaseException:
            self.unsubscribe(mailbox, topic)
            raise
        if feed.last is None:
            feed.last = stored
        current = max(stored, feed.last)
        subscription.position = current if after_seq is None else min(after_seq, current)
        mailbox.put_notice(
            msgspec.json.encode({"topic": shown_topic(topic), "type": "subscribed", "seq": current}).decode()
        )
        if after_seq is not None and after_seq > current:
            # The client knows numbers that this database never gave out: what it holds is from elsewhere.
            subscription.put(gap(topic, 0, current))
        subscription.replay = asyncio.create_task(self._replay(subscription, feed))
        self._want(feed, current)
        return current

    def unsubscribe(self, mailbox: SubscriberQueue, topic: str) -> None:
        subscription = mailbox.subscriptions.pop(topic, None)
        if subscription is None:
            return
        if subscription.replay is not None:
            subscription.replay.cancel()
        feed = subscription.feed
        feed.subscriptions.discard(subscription)
        if not feed.subscriptions:
            if feed.reading is not None:
                feed.reading.cancel()
            self._feeds.pop(topic, None)

    def leave(self, mailbox: SubscriberQueue) -> None:
        for topic in list(mailbox.subscriptions):
            self.unsubscribe(mailbox, topic)

    async def close(self) -> None:
        for feed in list(self._feeds.values()):
            for subscription in list(feed.subscriptions):
                self.unsubscribe(subscription.mailbox, feed.topic)
        await cancel_and_wait(self._tasks)
        self._tasks = []
        if self._reader is not None:
            await self._reader.close()

    # --- feeding ------------------------------------------------------------------------------------------

    async def _replay(self, subscription: Subscription, feed: TopicFeed) -> None:
        mailbox = subscription.mailbox
        while subscription.position < (last := feed.last or 0):
            # A replay can wait for its reader, so it never makes a gap of its own.
            while len(subscription.waiting) >= mailbox.frames_per_topic // 2:
                mailbox.emptied.clear()
                await mailbox.emptied.wait()
            room = max(1, mailbox.frames_per_topic // 2)
            frames = await self._read_patiently(feed.topic, subscription.position, last, room)
            _put_all([subscription], subscription.position, frames, end=None if len(frames) >= room else last)
        subscription.live = True

    def _want(self, feed: TopicFeed, seq: int) -> None:
        feed.wanted = max(feed.wanted, seq)
        if (
            feed.last is not None
            and feed.last < feed.wanted
            and (feed.reading is None or feed.reading.done())
        ):
            feed.reading = asyncio.create_task(self._advance(feed, feed.last))

    async def _advance(self, feed: TopicFeed, last: int) -> None:
        while last < feed.wanted:
            wanted = feed.wanted
            frames = await self._read_patiently(feed.topic, last, wanted, FRAMES_PER_READ)
            end = wanted if len(frames) < FRAMES_PER_READ else frames[-1].seq
            live = [subscription for subscription in feed.subscriptions if subscription.live]
            _put_all(live, last, frames, end=end)
            feed.last = last = end

    # --- the database -------------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._poll())]

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    **self._connect, autocommit=True
                ) as listener:
                    await listener.execute(f"LISTEN {CHANNEL}")
                    self._listening.set()
                    failures = 0
                    while True:
                        # Also the proof that the connection lives, and a net under a lost notification.
                        await self._catch_up(listener)
                        async for notification in listener.notifies(timeout=CHECK_SECONDS):
                            topic, _, seq = notification.payload.rpartition(" ")
                            if feed := self._feeds.get(topic):
                                self._want(feed, int(seq))
            except psycopg.Error as error:
                self._listening.clear()
                wait = RECONNECT_SECONDS[min(failures, len(RECONNECT_SECONDS) - 1)]
                failures += 1
                logger.warning(
                    "live stream: LISTEN lost (%s); asking every %s s, next try in %s s",
                    error,
                    POLL_SECONDS,
                    wait,
                )
                await asyncio.sleep(wait)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if self._listening.is_set() or not self._feeds:
                continue
            try:
                numbers = await self._numbers(list(self._feeds))
            except psycopg.Error as error:
                logger.warning("live stream: the database does not answer (%s)", error)
                continue
            self._want_all(numbers)

    async def _catch_up(self, listener: psycopg.AsyncConnection[Any]) -> None:
        cursor = await listener.execute(_NUMBERS, (list(self._feeds),))
        self._want_all(dict(await cursor.fetchall()))

    def _want_all(self, numbers: dict[str, int]) -> None:
        for topic, seq in numbers.items():
            if feed := self._feeds.get(topic):
                self._want(feed, seq)

    async def _numbers(self, topics: list[str]) -> dict[str, int]:
        return dict(await self._query(_NUMBERS, (topics,)))

    async def _read_patiently(self, topic: str, after: int, last: int, limit: int) -> list[Frame]:
        failures = 0
        while True:
            try:
                rows = await self._query(_FRAMES, (topic, after, last, limit))
                return [_frame(topic, *row) for row in rows]
            except psycopg.Error as error:
                wait = RECONNECT_SECONDS[min(failures, len(RECONNECT_SECONDS) - 1)]
                failures += 1
                logger.warning(
                    "live stream: frames of %s cannot be read (%s); next try in %s s", topic, error, wait
                )
                await asyncio.sleep(wait)

    async def _query(self, statement: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        async with self._reader_lock:
            if self._reader is None or self._reader.closed:
                self._reader = await psycopg.AsyncConnection.connect(**self._connect, autocommit=True)
            try:
                cursor = await self._reader.execute(statement, parameters)
                return await cursor.fetchall()
            except BaseException:
                # Cancelled or broken in the middle of a statement: this connection is not to be used again.
                await self._reader.close()
                raise


_NUMBERS = "SELECT topic, seq FROM core_livetopic WHERE topic = ANY(%s)"
_FRAMES = """
SELECT seq, type, replaces, at, data FROM core_streamframe
WHERE topic = %s AND seq > %s AND seq <= %s ORDER BY seq LIMIT %s
"""


def shown_topic(topic: str) -> str:
    """The name that clients use: every project has a `runs` topic of its own."""
    return "runs" if topic.startswith("runs:") else topic


def gap(topic: str, first: int, last: int) -> Frame:
    """The frame that says which numbers a reader did not get."""
    text = _text(
        topic, last, "gap", datetime.now(UTC), msgspec.json.encode({"from": first, "to": last}).decode()
    )
    return Frame(topic=topic, seq=last, type="gap", text=text, first=first)


def _put_all(
    subscriptions: Iterable[Subscription], after: int, frames: list[Frame], *, end: int | None
) -> None:
    """Hand on frames that should be after+1 .. end without a hole; what is missing was pruned: say so."""
    whole: list[Frame] = []
    for frame in frames:
        if frame.seq != after + 1:
            whole.append(gap(frame.topic, after + 1, frame.seq - 1))
        whole.append(frame)
        after = frame.seq
    for subscription in subscriptions:
        for frame in whole:
            subscription.put(frame)
        if end is not None and after < end:
            subscription.put(gap(subscription.feed.topic, after + 1, end))


def _frame(topic: str, seq: int, type: str, replaces: str, at: datetime, data: str) -> Frame:
    return Frame(
        topic=topic, seq=seq, type=type, text=_text(topic, seq, type, at, data), first=seq, replaces=replaces
    )


def _text(topic: str, seq: int, type: str, at: datetime, data: str) -> str:
    ts = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f'{{"topic":"{shown_topic(topic)}","seq":{seq},"type":"{type}","ts":"{ts}","data":{data}}}'


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, EventHub] = WeakKeyDictionary()


def hub() -> EventHub:
    """The hub of the running event loop; its connections open with the first subscription."""
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = EventHub(
            connect_parameters()
            | {
                "application_name": "oolong live stream",
                "connect_timeout": connection.settings_dict["OPTIONS"]["connect_timeout"],
            }
        )
    return _hubs[loop]
