"""Whose word counts about where a request came from: X-Forwarded-For and X-Forwarded-Proto of named proxies alone.

uvicorn runs with `--no-proxy-headers`, because by itself it believes everybody on 127.0.0.1. The address that counts
is the rightmost one in X-Forwarded-For that is not a trusted proxy: what stands left of it was written by the client.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import redis
import redis.asyncio as valkey
from prometheus_client import Counter
from redis.exceptions import RedisError
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger(__name__)

REPORT_KEY = "oolong:forwarded:untrusted"  # the newest untrusted sender's address, for the doctor
REPORT_LASTS_SECONDS = 24 * 3600
REPORT_EVERY_SECONDS = 60.0
CALL_SECONDS = 2.0
HEADERS = frozenset({b"x-forwarded-for", b"x-forwarded-proto"})

UNTRUSTED = Counter(
    "oolong_untrusted_forwarded_headers_total",
    "Requests whose forwarded headers were ignored because their sender is no trusted proxy.",
)


class ForwardedHeaders:
    """ASGI: replaces the client and the scheme by what a trusted proxy says of them, and reports untrusted ones."""

    def __init__(self, app: App, *, trusted: Sequence[str], redis_url: str) -> None:
        self._proxies = ProxyHeadersMiddleware(cast(Any, app), trusted_hosts=list(trusted))
        self._redis_url = redis_url
        self._report_again_at = 0.0
        self._reports: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = (scope.get("client") or ("", 0))[0]
        if any(name in HEADERS for name, _ in scope["headers"]) and sender not in self._proxies.trusted_hosts:
            self._note(sender)
        await self._proxies(cast(Any, scope), cast(Any, receive), cast(Any, send))

    def _note(self, sender: str) -> None:
        UNTRUSTED.inc()
        if time.monotonic() < self._report_again_at:
            return
        self._report_again_at = time.monotonic() + REPORT_EVERY_SECONDS
        log.warning(
            "%s sends X-Forwarded headers and is not in OOLONG_TRUSTED_PROXIES: they are ignored", sender
        )
        report = asyncio.create_task(self._report(sender))
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)

    async def _report(self, sender: str) -> None:
        """Leave a note for `manage.py doctor`, which runs in another process."""
        client = valkey.Redis.from_url(
            self._redis_url, socket_connect_timeout=CALL_SECONDS, socket_timeout=CALL_SECONDS
        )
        try:
            await client.set(REPORT_KEY, sender, ex=REPORT_LASTS_SECONDS)
        except (RedisError, OSError) as error:
            log.warning("cannot note an untrusted proxy for the doctor: %s", error)
        finally:
            await client.aclose()


def untrusted_sender(redis_url: str) -> str:
    """The address that last sent forwarded headers without being trusted, within a day; "" for none."""
    client = redis.Redis.from_url(redis_url, socket_connect_timeout=CALL_SECONDS, socket_timeout=CALL_SECONDS)
    try:
        found = cast("bytes | None", client.get(REPORT_KEY))
    finally:
        client.close()
    return found.decode(errors="replace") if found else ""


def network_of(address: str) -> str:
    """What limits count by: an IPv4 address, and of IPv6 the /64, of which one client has every address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed.packed[:8] + bytes(8), 64)))
    return str(parsed)
