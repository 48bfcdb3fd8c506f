"""msgpack over HTTP as the rollout processes speak it: one POST per verb, a bearer token, `ErrorReply` for a no."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp
import msgspec
from aiohttp import web

from oolong.contracts.rollout import ErrorReply, Message

log = logging.getLogger(__name__)

Reply = TypeVar("Reply", bound=Message)
Request = TypeVar("Request", bound=Message)

MAX_BODY_BYTES = 512 * 1024**2
CONNECT_SECONDS = 180.0  # all jobs of an attempt start at once, and a peer may be last
PATIENCE_SECONDS = 60.0  # with a peer that has answered before


class PeerGone(ConnectionError):
    """The peer did not answer for too long; the message names it and says for how long."""


class CallRefused(Exception):
    """The peer answered with ErrorReply."""

    def __init__(self, verb: str, refused: ErrorReply) -> None:
        super().__init__(f"{verb}: {refused.code}: {refused.message}")
        self.code = refused.code


class Peer:
    """A client of one process of the attempt. Calls wait, bounded, for a peer that is not there (yet)."""

    def __init__(self, name: str, url: str, token: str, *, connect_seconds: float = CONNECT_SECONDS) -> None:
        self.name = name
        self._url = url.rstrip("/")
        self._patience_seconds = connect_seconds
        self._http = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"},
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        )

    async def call(
        self,
        verb: str,
        request: Message,
        reply: type[Reply],
        *,
        timeout: float = 60.0,
        patience_seconds: float | None = None,
    ) -> Reply:
        """Repeats a call whose connection failed: every verb is safe to repeat. Raises CallRefused, PeerGone."""
        body = msgspec.msgpack.encode(request)
        patience = self._patience_seconds if patience_seconds is None else patience_seconds
        deadline = time.monotonic() + patience
        pause = 0.05
        while True:
            try:
                async with self._http.post(
                    f"{self._url}/{verb}", data=body, timeout=aiohttp.ClientTimeout(total=timeout)
                ) as response:
                    content = await response.read()
                self._patience_seconds = min(self._patience_seconds, PATIENCE_SECONDS)
                if response.status == 200:
                    return msgspec.msgpack.decode(content, type=reply)
                raise CallRefused(f"{self.name}/{verb}", _refusal(response.status, content))
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError) as error:
                if time.monotonic() > deadline:
                    raise PeerGone(
                        f"{self.name} at {self._url} did not answer /{verb} for {patience:g} s: {error}"
                    ) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)

    async def close(self) -> None:
        await self._http.close()


def _refusal(status: int, content: bytes) -> ErrorReply:
    try:
        return msgspec.msgpack.decode(content, type=ErrorReply)
    except msgspec.DecodeError:
        return ErrorReply(code=f"http_{status}", message=content[:300].decode(errors="replace"))


class Refuse(Exception):
    """Raised by a handler: answer with this status and ErrorReply."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.refused = ErrorReply(code=code, message=message)


def has_token(header: str, token: str) -> bool:
    """Whether an Authorization header carries the token; in the time that one of that length takes."""
    return hmac.compare_digest(header.encode(errors="surrogateescape"), f"Bearer {token}".encode())


class Door:
    """The server side: one handler per verb, typed by its request struct."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.app = web.Application(client_max_size=MAX_BODY_BYTES)
        self._runner: web.AppRunner | None = None

    def verb(
        self, name: str, request: type[Request], handler: Callable[[Request], Awaitable[Message]]
    ) -> None:
        decoder = msgspec.msgpack.Decoder(request)

        async def answer(call: web.Request) -> web.Response:
            if not has_token(call.headers.get("Authorization", ""), self._token):
                return _answer(
                    401, ErrorReply(code="unauthorized", message="the attempt's token is missing or wrong")
                )
            try:
                asked = decoder.decode(await call.read())
            except (msgspec.DecodeError, RecursionError) as error:  # RecursionError: it is nested too deeply
                return _answer(400, ErrorReply(code="malformed", message=f"/{name}: {error}"))
            try:
                return _answer(200, await handler(asked))
            except Refuse as refuse:
                return _answer(refuse.status, refuse.refused)

        self.app.router.add_post(f"/{name}", answer)

    async def open(self, host: str, port: int) -> int:
        """Listen; port 0 takes a free one. Returns the port."""
        # A caller that is gone must not be handed a claim by the long poll that it left behind.
        self._runner = web.AppRunner(
            self.app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        address: tuple[str, int] = self._runner.addresses[0]
        return address[1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


def _answer(status: int, message: Message) -> web.Response:
    return web.Response(
        status=status, body=msgspec.msgpack.encode(message), content_type="application/vnd.msgpack"
    )
