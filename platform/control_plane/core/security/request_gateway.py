"""What happens to a request before Django reads its body: it is charged, and its body is bounded.

Django puts a body on disk before it runs any code of ours. So the bytes are bounded here, by what is announced and
by what arrives; and whoever sends more than plain JSON must say who he is first. Outside the API nobody says who he
is: there the address is charged, for what costs anything, and a body is small.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from control_plane.core.api.errors import CONTENT_TYPE, Problem, body
from control_plane.core.infra.ids import new_id
from control_plane.core.security.forwarded import network_of
from control_plane.core.security.rate_limits import Limiter, cost_of
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
_APART = {"/readyz": "probe", "/metrics": "scrape"}
# Files; who sends them is asked for before the first byte is read.
_FILES = (
    (re.compile(r"/api/v1/uploads"), 256 * 1024 * MIB),
    (re.compile(r"/api/v1/upload-sessions/[^/]+/parts/\d+"), 33 * MIB),
    (re.compile(r"/api/v1/agent/(uploads|imports)/[^/]+/parts/\d+"), 64 * MIB),
    (re.compile(r"/api/v1/agent/model-checks/[^/]+/complete"), REPORT_BYTES),
)


@dataclass(frozen=True)
class Knock:
    """What the head of a request says."""

    method: str
    path: str
    address: str
    bearer: str  # "" for none
    session: str  # key of a browser's session, "" for none
    project: str  # the one that a session's user names, "" for none
    announced_bytes: int | None  # None: it does not say (chunked), or says nonsense

    @property
    def is_of_api(self) -> bool:
        return self.path.startswith(("/api/", "/ws/"))

    @property
    def credential(self) -> str:
        """A digest by which the credential is recognised; "" for none, and outside the API."""
        text = (self.bearer or self.session) if self.is_of_api else ""
        return hashlib.sha256(text.encode()).hexdigest()[:32] if text else ""

    @property
    def payer(self) -> str:
        """The address; apart from its other requests for the probe, which says whether the service gets any at all,
        and for who scrapes metrics, whose curves are needed most when that address asks too much."""
        network = network_of(self.address)
        return f"{network} {_APART[self.path]}" if self.path in _APART else network

    @property
    def most_bytes(self) -> int:
        for pattern, most in _FILES:
            if pattern.fullmatch(self.path):
                return most
        return PLAIN_BYTES if self.credential else ANONYMOUS_BYTES


class SocketGate:
    """ASGI: charges the handshake of a WebSocket like a request, before anything else is done for it."""

    def __init__(self, app: App, *, limiter: Limiter, session_cookie: str) -> None:
        self._app, self._limiter, self._session_cookie = app, limiter, session_cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        knock = read_knock(scope, self._session_cookie)
        charge = await self._limiter.take(
            credential=knock.credential, address=knock.payer, cost=cost_of(knock.method, knock.path)
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
    """More bytes arrived than may."""


class Doorkeeper:
    """ASGI: stands before Django. `refusal_of` says what is wrong with who wants to send a file; None: nothing."""

    def __init__(
        self,
        app: App,
        *,
        limiter: Limiter,
        refusal_of: Callable[[Knock], Awaitable[Problem | None]],
        session_cookie: str,
    ) -> None:
        self._app, self._limiter, self._refusal_of = app, limiter, refusal_of
        self._session_cookie = session_cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        knock = read_knock(scope, self._session_cookie)
        charge = await self._limiter.take(
            credential=knock.credential, address=knock.payer, cost=cost_of(knock.method, knock.path)
        )
        limits = charge.headers() if charge else {}
        if charge and charge.is_over:
            detail = f"{charge.used} of {charge.quota} units a minute are used; wait {charge.seconds_left} s"
            wait = {**limits, "Retry-After": str(charge.seconds_left)}
            await _refuse(send, 429, "rate_limited", detail, wait)
            return
        most = knock.most_bytes
        if (knock.announced_bytes or 0) > most:
            await _refuse(send, 413, "too_large", f"the body may have at most {most} bytes", limits)
            return
        if most > PLAIN_BYTES and (problem := await self._refusal_of(knock)) is not None:
            said = {**limits, **problem.headers}
            await _refuse(send, problem.status, problem.code, problem.detail, said)
            return
        status = await self._pass_on(scope, receive, send, most=most, headers=limits)
        await self._limiter.changes.note(method=knock.method, path=knock.path, status=status or 500)
        if charge is not None and knock.credential:
            await self._learn(knock.credential, known=charge.known, origin=scope.get("origin"), status=status)

    async def _pass_on(
        self, scope: Scope, receive: Receive, send: Send, *, most: int, headers: Mapping[str, str]
    ) -> int:
        """The status that was answered; 0 when there was no answer."""
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
        """`origin` is what Django's authentication found out (see `origin.note_origin`)."""
        if status == 401 and known:
            await self._limiter.forget(credential)
        elif not known and origin is not None and origin.actor_id:
            await self._limiter.remember(credential, f"{origin.actor_kind}:{origin.actor_id}")


def read_knock(scope: Scope, session_cookie: str) -> Knock:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    kind, _, bearer = headers.get("authorization", "").partition(" ")
    found = re.search(rf"(?:^|;\s*){re.escape(session_cookie)}=([^;]+)", headers.get("cookie", ""))
    length = headers.get("content-length", "")
    return Knock(
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
        "Connection": "close",  # what is still on its way is not read
    }  # fmt: skip
    document = json.dumps(body(status, code, detail, identity)).encode()
    await send({"type": f"{kind}.start", "status": status, "headers": _encoded(said)})
    await send({"type": f"{kind}.body", "body": document})


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
