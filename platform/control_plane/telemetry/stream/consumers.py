"""The live stream over a WebSocket: /ws/v1.

A browser is known by its session cookie and must come from our own origin (?project=prj_… names one of several
projects); a program sends {"op": "auth", "token": "ool_…"} as its first message, or a "ticket" in its place. Then
{"op": "subscribe", "topic", "after_seq"?} and {"op": "unsubscribe", "topic"}. Close codes: 4401 not (or no longer)
authenticated, 4403 foreign origin, 4404 no such topic for this caller, 4408 too slow, 4429 too many messages, topics or
open streams (`common.open_streams`). A handshake over the rate limit is answered with 429 instead.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

import msgspec
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings

from control_plane.accounts.identity.caller import Caller
from control_plane.core.infra import clock, metrics
from control_plane.core.stream.event_hub import SubscriberQueue, hub
from control_plane.core.stream.open_streams import OpenStream, TooManyStreams, stream_limits
from control_plane.telemetry.stream.access_watch import access_watch, wait_for_wakeup
from control_plane.telemetry.stream.credentials import (
    Credential,
    in_database,
    is_same_origin,
    redeem,
    seconds_until_expiry,
)
from control_plane.telemetry.stream.topics import readable_topic

AUTHENTICATE_SECONDS = 10.0
PING_SECONDS = 15.0
RECHECK_SECONDS = 60.0
SLOW_SECONDS = 30.0  # a frame that cannot be sent for so long ends the socket
MAX_TOPICS = 64
MAX_MESSAGES, MESSAGES_SECONDS = 200, 10.0
MAX_MESSAGE_LENGTH = 16 * 1024
MAX_REASON_LENGTH = 120  # bytes of ASCII; a close frame has room for 123

NOT_AUTHENTICATED, FOREIGN_ORIGIN, TOPIC_NOT_FOUND, TOO_SLOW, LIMIT_EXCEEDED = 4401, 4403, 4404, 4408, 4429


class Request(msgspec.Struct):
    op: str
    topic: str = ""
    after_seq: int | None = None
    token: str = ""
    ticket: str = ""


class StreamConsumer(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        self.mailbox = SubscriberQueue()
        self.topics: dict[str, str] = {}  # as the client names them -> as they are published
        self.credential: Credential | None = None
        self.woken = asyncio.Event()  # it has said who it is, or may have lost power since
        self.stop_watching: Callable[[], None] | None = None
        self.stream: OpenStream | None = None
        self.ended = False
        self.tasks: list[asyncio.Task[None]] = []
        self.heard: deque[float] = deque(maxlen=MAX_MESSAGES)
        # Accepted even when it is refused at once: only then does the client see the close code.
        await self.accept()
        metrics.SOCKETS.inc()
        try:
            self.stream = stream_limits().open((self.scope.get("client") or ("", 0))[0])
        except TooManyStreams as refusal:
            await self._end(LIMIT_EXCEEDED, str(refusal))
            return
        session = self._session_cookie()
        if session:
            if not is_same_origin(origin=self._header("origin"), host=self._header("host")):
                await self._end(FOREIGN_ORIGIN)
                return
            await self._authenticate(Credential(session=session, project=self._named_project()))
        if not self.ended:
            self.tasks = [asyncio.create_task(self._send_frames()), asyncio.create_task(self._watch())]

    async def disconnect(self, code: int) -> None:
        metrics.SOCKETS.dec()
        if self.stream is not None:
            self.stream.close()
        hub().leave(self.mailbox)
        self._stop_watching()
        for task in self.tasks:
            task.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        now = time.monotonic()
        too_many = len(self.heard) == MAX_MESSAGES and now - self.heard[0] < MESSAGES_SECONDS
        self.heard.append(now)
        text = text_data or ""
        if too_many or len(text) > MAX_MESSAGE_LENGTH:
            await self._end(LIMIT_EXCEEDED)
            return
        try:
            request = msgspec.json.decode(text, type=Request)
        except ValueError as error:
            self._notify("error", code="malformed", message=f"{error}; send a JSON object with op and topic")
            return
        match request.op:
            case "auth":
                if request.ticket:
                    credential = await in_database(redeem)(request.ticket)
                else:
                    credential = Credential(token=request.token)
                if credential is None or not await self._authenticate(credential):
                    await self._end(NOT_AUTHENTICATED)
            case "subscribe":
                await self._subscribe(request.topic, request.after_seq)
            case "unsubscribe":
                if published := self.topics.pop(request.topic, None):
                    hub().unsubscribe(self.mailbox, published)
            case "pong":
                pass
            case other:
                message = f"op={other!r}: auth, subscribe, unsubscribe or pong"
                self._notify("error", code="unknown_op", message=message)

    async def _authenticate(self, credential: Credential) -> bool:
        """False for a credential of nobody. A user with too many streams has this one closed."""
        caller = await in_database(credential.caller)()
        if caller is None:
            return False
        assert self.stream is not None, "a socket that was not admitted is closed"
        try:
            self.stream.identify(caller.user.pk)
        except TooManyStreams as refusal:
            await self._end(LIMIT_EXCEEDED, str(refusal))
            return True
        self.credential = credential
        self.lasts_until = time.monotonic() + seconds_until_expiry(caller, clock.now())
        self._stop_watching()
        self.stop_watching = access_watch().follow(caller.user.pk, self.woken.set)
        self.woken.set()
        self._notify("authenticated")
        return True

    async def _subscribe(self, topic: str, after_seq: int | None) -> None:
        if self.credential is None:
            await self._end(NOT_AUTHENTICATED)
            return
        if len(self.topics) >= MAX_TOPICS and topic not in self.topics:
            await self._end(LIMIT_EXCEEDED)
            return
        published = await in_database(self._readable)(self.credential, topic)
        if isinstance(published, int):
            await self._end(published)
            return
        self.topics[topic] = published
        await hub().subscribe(self.mailbox, published, after_seq)

    @staticmethod
    def _readable(credential: Credential, topic: str) -> str | int:
        """The topic as it is published, or the close code."""
        caller = credential.caller()
        if caller is None:
            return NOT_AUTHENTICATED
        return readable_topic(caller, topic) or TOPIC_NOT_FOUND

    # --- tasks of the socket ------------------------------------------------------------------------------

    async def _send_frames(self) -> None:
        while True:
            for _, text in await self.mailbox.take():
                try:
                    async with asyncio.timeout(SLOW_SECONDS):
                        await self.send(text_data=text)
                except TimeoutError:
                    await self._end(TOO_SLOW)
                    return

    async def _watch(self) -> None:
        """Close a socket that does not authenticate in time or loses its access; ping the others."""
        await wait_for_wakeup(self.woken, AUTHENTICATE_SECONDS)
        if self.credential is None:
            await self._end(NOT_AUTHENTICATED)
            return
        checked = time.monotonic()
        self.woken.set()  # access may have changed between the look-up and the start of the watch
        while True:
            self._notify("ping")
            quiet = min(PING_SECONDS, max(0.0, self.lasts_until - time.monotonic()))
            told = await wait_for_wakeup(self.woken, quiet)
            now = time.monotonic()
            if told or now >= self.lasts_until or now - checked >= RECHECK_SECONDS:
                checked = now
                found = await in_database(self._recheck)(self.credential, list(self.topics))
                if isinstance(found, int):
                    await self._end(found)
                    return
                self.lasts_until = now + seconds_until_expiry(found, clock.now())

    @staticmethod
    def _recheck(credential: Credential, topics: list[str]) -> Caller | int:
        """The caller now; the close code if the credential or one of the topics is no longer valid."""
        caller = credential.caller()
        if caller is None:
            return NOT_AUTHENTICATED
        if not all(readable_topic(caller, topic) for topic in topics):
            return TOPIC_NOT_FOUND
        return caller

    async def _end(self, code: int, reason: str = "") -> None:
        self.ended = True
        hub().leave(self.mailbox)
        self._stop_watching()
        for task in self.tasks:
            if task is not asyncio.current_task():
                task.cancel()
        await self.close(code, reason[:MAX_REASON_LENGTH] or None)

    def _stop_watching(self) -> None:
        if self.stop_watching is not None:
            self.stop_watching()

    def _notify(self, type: str, **data: Any) -> None:
        frame = {"topic": None, "seq": None, "type": type, "ts": clock.rfc3339(clock.now()), "data": data}
        self.mailbox.put_notice(msgspec.json.encode(frame).decode())

    def _header(self, name: str) -> str:
        return next(
            (value.decode("latin-1") for key, value in self.scope["headers"] if key == name.encode()), ""
        )

    def _named_project(self) -> str:
        return parse_qs(self.scope.get("query_string", b"").decode("latin-1")).get("project", [""])[0]

    def _session_cookie(self) -> str:
        try:
            cookie = SimpleCookie(self._header("cookie")).get(settings.SESSION_COOKIE_NAME)
        except CookieError:
            return ""
        return cookie.value if cookie else ""
