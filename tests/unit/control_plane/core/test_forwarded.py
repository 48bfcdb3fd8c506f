"""Forwarded headers count when a trusted proxy sends them, and change nothing otherwise."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from control_plane.core.security import forwarded
from control_plane.core.security.forwarded import REPORT_KEY, UNTRUSTED, ForwardedHeaders, untrusted_sender
from control_plane.core.security.request_gateway import parse_head
from control_plane.ops.doctor.findings import findings
from tests.support.waiting import eventually

NOWHERE = "redis://127.0.0.1:1/0"
PROXIES = ("10.9.0.2/32", "10.8.0.0/16", "2001:db8:1::/48")


async def seen(
    sender: str, *headers: tuple[str, str], kind: str = "http", redis_url: str = NOWHERE
) -> tuple[str, str]:
    """The client's address and the scheme behind the middleware."""
    found: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.update(scope)

    scope = {
        "type": kind, "method": "GET", "path": "/api/v1/me", "client": (sender, 1),
        "scheme": "ws" if kind == "websocket" else "http",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
    }  # fmt: skip
    middleware = ForwardedHeaders(app, trusted=PROXIES, redis_url=redis_url)
    await middleware(scope, None, None)  # type: ignore[arg-type]
    assert parse_head(found, "s").address == found["client"][0]
    return found["client"][0], found["scheme"]


@pytest.mark.parametrize(
    ("sender", "forwarded_for", "client"),
    [
        ("198.51.100.1", "1.1.1.1", "198.51.100.1"),  # no proxy
        ("127.0.0.1", "1.1.1.1", "127.0.0.1"),  # nor is loopback
        ("10.9.0.2", "198.51.100.1", "198.51.100.1"),
        ("10.9.0.2", "1.1.1.1, 198.51.100.1", "198.51.100.1"),  # the client wrote 1.1.1.1 itself
        ("10.9.0.2", "1.1.1.1, 10.8.4.4", "1.1.1.1"),  # two proxies of ours
        ("10.9.0.2", "10.9.0.2, 198.51.100.1, 10.8.4.4", "198.51.100.1"),
        ("2001:db8:1::7", "2001:db8:ffff::1", "2001:db8:ffff::1"),
        ("10.9.0.3", "1.1.1.1", "10.9.0.3"),
    ],
)
async def test_the_rightmost_untrusted_address_is_the_client(
    sender: str, forwarded_for: str, client: str
) -> None:
    for kind in ("http", "websocket"):
        assert (await seen(sender, ("X-Forwarded-For", forwarded_for), kind=kind))[0] == client


async def test_lines_of_the_header_are_one_list() -> None:
    lines = [("X-Forwarded-For", "1.1.1.1"), ("X-Forwarded-For", "198.51.100.1")]
    assert (await seen("10.9.0.2", *lines))[0] == "198.51.100.1"


async def test_the_scheme_is_believed_from_a_trusted_proxy_alone() -> None:
    assert (await seen("10.9.0.2", ("X-Forwarded-Proto", "https")))[1] == "https"
    assert (await seen("198.51.100.1", ("X-Forwarded-Proto", "https")))[1] == "http"
    assert (await seen("10.9.0.2", ("X-Forwarded-Proto", "https"), kind="websocket"))[1] == "wss"


@pytest.fixture
def report(valkey_url: str) -> Iterator[str]:
    client = redis.Redis.from_url(valkey_url)
    client.delete(REPORT_KEY)
    yield valkey_url
    client.delete(REPORT_KEY)
    client.close()


async def test_an_untrusted_sender_is_counted_and_named_by_the_doctor(
    report: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarded, "CALL_SECONDS", 60.0)
    before = UNTRUSTED._value.get()
    await seen("10.9.0.2", ("X-Forwarded-For", "1.1.1.1"), redis_url=report)
    await seen("198.51.100.1", ("Accept", "*/*"), redis_url=report)
    assert (untrusted_sender(report), UNTRUSTED._value.get()) == ("", before)

    sender = f"198.51.100.{secrets.randbelow(250)}"
    await seen(sender, ("X-Forwarded-For", "1.1.1.1"), redis_url=report)
    await eventually(lambda: untrusted_sender(report) == sender, what="a note for the doctor")
    assert UNTRUSTED._value.get() == before + 1
    nothing: dict[str, Any] = {
        "services": [], "migrations": {}, "runs": {}, "slots": {}, "nodes": [{"status": "READY", "unhealthy": 0,
        "agent_version": "1"}], "disk": [], "dashboard": {"built": True}, "settings": {},
        "ticks": [{"name": "x", "age_seconds": 1.0, "failures": 0}], "untrusted_proxy": untrusted_sender(report),
        "sandbox": "",
    }  # fmt: skip
    (advice,) = findings(nothing)
    assert sender in advice.what and "OOLONG_TRUSTED_PROXIES" in advice.do
    assert findings({**nothing, "untrusted_proxy": ""}) == []
