"""ASGI middleware in front of Django: charges a request to its rate limit and bounds its body.

Django spools a body to disk before any view runs. So the size is checked here, as announced and as received, and
a body larger than plain JSON needs a credential first. Outside the API there are no credentials: requests are charged
to the address, and bodies are small.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from control_plane.core.api.errors import CONTENT_TYPE, Problem, problem_document
from control_plane.core.infra.ids import new_id
from control_plane.core.security.forwarded import network_of
from control_plane.core.security.rate_limits import Limiter
from control_plane.core.security.request_context import Origin

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PROJECT_HEADER = "X-Oolong-Project"
MIB = 1024**2
ANONYMOUS_BYTES = MIB // 16  # a login, an enrollment
PLAIN_BYTES = 8 * MIB
REPORT_BYTES = 16 * MIB  # what a node found in a model: thousands of files, a config
_OWN_BUDGET = {"/readyz": "probe", "/metrics": "scrape"}
# Uploads of files. The credential is checked before the first byte is read.
_FILES = (
    (re.compile(r"/api/v1/uploads"), 256 * 1024 * MIB),
    (re.compile(r"/api/v1/upload-sessions/[^/]+/parts/\d+"), 33 * MIB),
    (re.compile(r"/api/v1/agent/(uploads|imports)/[^/]+/parts/\d+"), 64 * MIB),
    (re.compile(r"/api/v1/agent/model-checks/[^/]+/complete"), REPORT_BYTES),
)


@dataclass(frozen=True)
class RequestHead:
    """The head of a request."""

    method: str
    path: str
    address: str
    bearer: str  # "" for none
    session: str  # key of a browser's session, "" for none
    project: str  # that the user of a session selects, "" for none
    announced_bytes: int | None  # None: absent (chunked) or invalid

    @property
    def is_of_api(self) -> bool:
        return self.path.startswith(("/api/", "/ws/"))

    @property
    def credential(self) -> str:
        """A digest that identifies the credential; "" for none, and outside the API."""
        text = (self.bearer or self.session) if self.is_of_api else ""
        return hashlib.sha256(text.encode()).hexdigest()[:32] if text else ""

    @property
    def rate_key(self) -> str:
        """The network of the address. Probes and metric scrapes have budgets of their own: they must keep working
        when other requests from that address exceed theirs."""
        network = network_of(self.address)
        return f"{network} {_OWN_BUDGET[self.path]}" if self.path in _OWN_BUDGET else network

    @property
    def max_body_bytes(self) -> int:
        for pattern, most in _FILES:
            if pattern.fullmatch(self.path):
                return most
        return PLAIN_BYTES if self.credential else ANONYMOUS_BYTES


class SocketGate:
    """ASGI: charges the handshake of a WebSocket like a request, before anything else runs."""

    def __init__(self, app: App, *, limiter: Limiter, session_cookie: str) -> None:
        self._app, self._limiter, self._session_cookie = app, limiter, session_cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = parse_head(scope, self._session_cookie)
        charge = await self._limiter.take(
            credential=head.credential, address=head.rate_key, method=head.method, path=head.path
        )
        if charge is None or not charge.is_over:
            await self._app(scope, receive, send)
            return
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": 4429})  # the server answers the handshake with 403
            return
        detail = f"{charge.used} of {charge.quota} units a minute are used; wait {charge.seconds_left} s"
        headers = {**charge.headers(), "Retry-After": str(charge.seconds_left)}
        await _refuse(send, 429, "rate_limited", detail, headers, kind="websocket.http.response")


class TooLarge(Exception):
    """The body exceeds its limit."""


class RequestGateway:
    """ASGI: wraps Django. `authorize_upload` returns the problem with the caller of a file upload, or None."""

    def __init__(
        self,
        app: App,
        *,
        limiter: Limiter,
        authorize_upload: Callable[[RequestHead], Awaitable[Problem | None]],
        session_cookie: str,
    ) -> None:
        self._app, self._limiter, self._authorize_upload = app, limiter, authorize_upload
        self._session_cookie = session_cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = parse_head(scope, self._session_cookie)
        charge = await self._limiter.take(
            credential=head.credential, address=head.rate_key, method=head.method, path=head.path
        )
        limits = charge.headers() if charge else {}
        if charge and charge.is_over:
            detail = f"{charge.used} of {charge.quota} units a minute are used; wait {charge.seconds_left} s"
            wait = {**limits, "Retry-After": str(charge.seconds_left)}
            await _refuse(send, 429, "rate_limited", detail, wait)
            return
        most = head.max_body_bytes
        if (head.announced_bytes or 0) > most:
            await _refuse(send, 413, "too_large", f"the body may have at most {most} bytes", limits)
            return
        if most > PLAIN_BYTES and (problem := await self._authorize_upload(head)) is not None:
            said = {**limits, **problem.headers}
            await _refuse(send, problem.status, problem.code, problem.detail, said)
            return
        status = await self._forward(scope, receive, send, most=most, headers=limits)
        await self._limiter.changes.note(method=head.method, path=head.path, status=status or 500)
        if charge is not None and head.credential:
            await self._learn(head.credential, known=charge.known, origin=scope.get("origin"), status=status)

    async def _forward(
        self, scope: Scope, receive: Receive, send: Send, *, most: int, headers: Mapping[str, str]
    ) -> int:
        """Return the status of the response; 0 when there was none."""
        arrived = status = 0

        async def counted() -> Mapping[str, Any]:
            nonlocal arrived
            message = await receive()
            arrived += len(message.get("body", b""))
            if arrived > most:
                raise TooLarge
            return message

        async def answered(message: Mapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *_encoded(headers)]}
            await send(message)

        try:
            await self._app(scope, counted, answered)
        except TooLarge:
            if status:
                raise
            await _refuse(send, 413, "too_large", f"the body may have at most {most} bytes", headers)
            return 413
        return status

    async def _learn(self, credential: str, *, known: bool, origin: Origin | None, status: int) -> None:
        """`origin` is what Django's authentication determined (see `request_context.note_origin`)."""
        if status == 401 and known:
            await self._limiter.forget(credential)
        elif not known and origin is not None and origin.actor_id:
            await self._limiter.remember(credential, f"{origin.actor_kind}:{origin.actor_id}")


def parse_head(scope: Scope, session_cookie: str) -> RequestHead:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    kind, _, bearer = headers.get("authorization", "").partition(" ")
    found = re.search(rf"(?:^|;\s*){re.escape(session_cookie)}=([^;]+)", headers.get("cookie", ""))
    length = headers.get("content-length", "")
    return RequestHead(
        method=scope.get("method", "GET"),  # a WebSocket's handshake is a GET
        path=scope["path"],
        address=(scope.get("client") or ("", 0))[0],
        bearer=bearer.strip() if kind.lower() == "bearer" else "",
        session=found[1] if found else "",
        project=headers.get(PROJECT_HEADER.lower(), ""),
        announced_bytes=int(length) if length.isdecimal() and len(length) < 20 else None,
    )


async def _refuse(
    send: Send,
    status: int,
    code: str,
    detail: str,
    headers: Mapping[str, str],
    *,
    kind: str = "http.response",
) -> None:
    identity = new_id("req")
    said = {
        **headers, "Content-Type": CONTENT_TYPE, "X-Request-Id": identity, "Cache-Control": "no-store",
        "Connection": "close",  # the rest of the body is not read
    }  # fmt: skip
    document = json.dumps(problem_document(status, code, detail, identity)).encode()
    await send({"type": f"{kind}.start", "status": status, "headers": _encoded(said)})
    await send({"type": f"{kind}.body", "body": document})


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
