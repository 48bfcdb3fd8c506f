"""RPC between the processes of an attempt: msgpack over HTTP, one POST per method, authorized by the attempt's token.

A method returns its reply with status 200, or an `ErrorReply` with another status.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp
import msgspec
from aiohttp import web

from oolong.contracts.rollout import ErrorReply, Message
from oolong.system.backoff import Backoff
from oolong.system.http_listener import HttpListener
from oolong.system.pinned_tls import client_context

Reply = TypeVar("Reply", bound=Message)
Request = TypeVar("Request", bound=Message)

MAX_BODY_BYTES = 512 * 1024**2
BOOT_TIMEOUT_SECONDS = 180.0  # all jobs of an attempt start at once, and the server may start last
RETRY_TIMEOUT_SECONDS = 60.0  # for a server that has answered before


class RpcUnavailable(ConnectionError):
    """The server did not answer before the deadline."""


class _ServerFailed(ConnectionError):
    """A 5xx reply of a server whose client retries them."""


class RpcError(Exception):
    """Raise it in a method to reply with `ErrorReply`; the client raises it again."""

    def __init__(self, status: int, code: str, message: str, *, method: str = "") -> None:
        super().__init__(f"{method}: {code}: {message}" if method else f"{code}: {message}")
        self.status = status
        self.code = code
        self.message = message


class RpcClient:
    """Calls the methods of one server, and retries lost calls: every method is idempotent.

    `retry_server_errors`: a 5xx reply counts as lost too. Not for servers whose methods reply with 5xx on purpose.
    `certificate`: of a server on another node, with an https URL; no other certificate is accepted.
    """

    def __init__(
        self,
        name: str,
        url: str,
        token: str,
        *,
        connect_seconds: float = BOOT_TIMEOUT_SECONDS,
        retry_server_errors: bool = False,
        certificate: str = "",
    ) -> None:
        self.name = name
        self._tls = client_context(certificate) if certificate else True
        self._url = url.rstrip("/")
        self._token = token
        self._retry_seconds = connect_seconds
        self._retry_server_errors = retry_server_errors
        self._http: aiohttp.ClientSession | None = None

    async def call(
        self,
        method: str,
        request: Message,
        reply: type[Reply],
        *,
        timeout: float = 60.0,
        retry_seconds: float | None = None,
    ) -> Reply:
        """Raises RpcError, and RpcUnavailable if no call succeeds within `retry_seconds`."""
        body = msgspec.msgpack.encode(request)
        limit = self._retry_seconds if retry_seconds is None else retry_seconds
        deadline = time.monotonic() + limit
        backoff = Backoff(initial=0.05, maximum=1.0)
        while True:
            try:
                status, content = await self._post(method, body, timeout)
                break
            except (
                aiohttp.ClientConnectionError,
                aiohttp.ClientPayloadError,
                _ServerFailed,
                TimeoutError,
            ) as error:
                if time.monotonic() > deadline:
                    raise RpcUnavailable(
                        f"{self.name} at {self._url} did not answer /{method} for {limit:g} s: {error!r}"
                    ) from error
            await asyncio.sleep(backoff.failed())
        self._retry_seconds = min(self._retry_seconds, RETRY_TIMEOUT_SECONDS)
        if status != 200:
            raise _decode_error(f"{self.name}/{method}", status, content)
        return msgspec.msgpack.decode(content, type=reply)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def _post(self, method: str, body: bytes, timeout: float) -> tuple[int, bytes]:
        if self._http is None:
            self._http = aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {self._token}"},
                connector=aiohttp.TCPConnector(limit=0, ssl=self._tls),
            )
        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=10)
        async with self._http.post(f"{self._url}/{method}", data=body, timeout=limits) as response:
            content = await response.read()
        if self._retry_server_errors and response.status >= 500:
            raise _ServerFailed(f"HTTP {response.status}: {content[:200]!r}")
        return response.status, content


def _decode_error(method: str, status: int, content: bytes) -> RpcError:
    try:
        error = msgspec.msgpack.decode(content, type=ErrorReply)
    except msgspec.DecodeError:
        error = ErrorReply(code=f"http_{status}", message=content[:300].decode(errors="replace"))
    return RpcError(status, error.code, error.message, method=method)


def has_token(header: str, token: str) -> bool:
    """Compare an Authorization header with the token in constant time."""
    return hmac.compare_digest(header.encode(errors="surrogateescape"), f"Bearer {token}".encode())


class RpcServer:
    """One handler per method, typed by its request."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.app = web.Application(client_max_size=MAX_BODY_BYTES)
        self._listener = HttpListener(self.app)

    def method(
        self, name: str, request: type[Request], handler: Callable[[Request], Awaitable[Message]]
    ) -> None:
        decoder = msgspec.msgpack.Decoder(request)

        async def serve(call: web.Request) -> web.Response:
            if not has_token(call.headers.get("Authorization", ""), self._token):
                return _error(401, "unauthorized", "the attempt's token is missing or wrong")
            try:
                decoded = decoder.decode(await call.read())
            except (msgspec.DecodeError, RecursionError) as error:  # RecursionError: nested too deeply
                return _error(400, "malformed", f"/{name}: {error}")
            try:
                return _response(200, await handler(decoded))
            except RpcError as error:
                return _error(error.status, error.code, error.message)

        self.app.router.add_post(f"/{name}", serve)

    async def start(self, host: str, port: int) -> int:
        """Listen; port 0 takes a free one. Returns the port."""
        return await self._listener.start(host, port)

    async def listen_also(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Listen with TLS on another address, after `start`."""
        await self._listener.listen_also(host, port, context)

    async def close(self) -> None:
        await self._listener.close()


def _error(status: int, code: str, message: str) -> web.Response:
    return _response(status, ErrorReply(code=code, message=message))


def _response(status: int, message: Message) -> web.Response:
    return web.Response(
        status=status, body=msgspec.msgpack.encode(message), content_type="application/vnd.msgpack"
    )
