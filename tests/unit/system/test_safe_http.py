"""Nothing inside the network can be reached by an address that somebody else names."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from oolong.public_address import is_public
from oolong.system import safe_http
from oolong.system.safe_http import (
    AddressBlocked,
    CheckedTransport,
    EndpointPolicy,
    FetchFailed,
    PublicPolicy,
    checked_addresses,
    download,
    parse_url,
)

PUBLIC = "93.184.216.34"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
     "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0",
     "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::a00:1",
     "2001:db8::1", "localhost", "", "2001:0:4136:e378:8000:63bf:f5ff:fffe"],
)  # fmt: skip
def test_an_address_that_is_not_of_the_open_internet_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", [PUBLIC, "8.8.8.8", "2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_an_address_of_the_open_internet_is(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    ["http://example.org/a", "ftp://example.org/a", "file:///etc/passwd", "https://", "https:///a", "//example.org",
     "https://user:pw@example.org/a", "https://user@example.org", "https://example.org:22/", "https://example.org:80/",
     "https://example.org:x/", "https://[::1", "gopher://example.org"],
)  # fmt: skip
def test_what_is_not_plain_https_is_refused_without_a_look_up(url: str) -> None:
    def never(host: str, port: int) -> list[str]:
        raise AssertionError("it was looked up")

    with pytest.raises(AddressBlocked):
        checked_addresses(parse_url(url), PublicPolicy(), never)


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f.1", "0177.0.0.1", "localhost", "127.0.0.1", "[::ffff:7f00:1]"]
)
def test_another_spelling_of_loopback_is_refused_once_it_is_resolved(host: str) -> None:
    """By the machine's own resolver, which knows these spellings."""
    with pytest.raises((AddressBlocked, FetchFailed)):
        checked_addresses(parse_url(f"https://{host}/"), PublicPolicy())


def test_one_private_address_among_public_ones_is_enough_to_refuse_and_only_the_log_names_it(
    caplog: Any,
) -> None:
    with pytest.raises(AddressBlocked, match=r"'example\.org' is not at a public address") as refused:
        checked_addresses(
            parse_url("https://example.org/a"), PublicPolicy(), lambda host, port: [PUBLIC, "10.0.0.5"]
        )
    assert "10.0.0.5" not in str(refused.value)
    assert "10.0.0.5" in caplog.text


Answer = Callable[[httpx.Request], httpx.Response]


def get(
    answer: Answer, names: dict[str, list[str]], url: str = "https://example.org/a?b=c", **limits: Any
) -> bytes:
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return names[host]

    given = {"most_bytes": 100, "seconds": 60.0, **limits}
    with download(url, resolve=resolve, transport=httpx.MockTransport(answer), **given) as chunks:
        body = b"".join(chunks)
    assert len(asked) == len(set(asked)), "a name is looked up once"
    return body


def test_the_connection_goes_to_the_checked_number_and_the_name_only_into_the_handshake() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, stream=httpx.ByteStream(b"rows"))

    assert get(answer, {"example.org": [PUBLIC]}) == b"rows"
    (request,) = seen
    assert str(request.url) == f"https://{PUBLIC}/a?b=c"
    assert (request.headers["Host"], request.extensions["sni_hostname"]) == ("example.org", "example.org")
    assert "Authorization" not in request.headers and "Cookie" not in request.headers


@pytest.mark.parametrize(
    "location",
    ["http://other.org/", "https://inside.org/", "https://169.254.169.254/meta", "file:///etc/passwd"],
)
def test_a_redirect_to_where_nobody_may_go_is_refused(location: str) -> None:
    names = {"example.org": [PUBLIC], "inside.org": ["10.0.0.1"], "169.254.169.254": ["169.254.169.254"]}
    with pytest.raises(AddressBlocked):
        get(lambda request: httpx.Response(302, headers={"Location": location}), names)


def test_a_redirect_to_a_public_address_is_followed_and_an_endless_one_is_not() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.headers["Host"] == "example.org":
            return httpx.Response(301, headers={"Location": "https://cdn.org/file"})
        return httpx.Response(200, stream=httpx.ByteStream(b"there"))

    assert get(answer, {"example.org": [PUBLIC], "cdn.org": ["8.8.8.8"]}) == b"there"

    def round_and_round(request: httpx.Request) -> httpx.Response:
        step = int(request.url.path[1:] or 0)
        return httpx.Response(302, headers={"Location": f"https://host{step + 1}.org/{step + 1}"})

    names = {f"host{step}.org": [PUBLIC] for step in range(20)}
    with pytest.raises(FetchFailed, match="more than 5 times"):
        get(round_and_round, names, "https://host0.org/0")


@pytest.mark.parametrize(
    ("answer", "limits", "says"),
    [
        (lambda request: httpx.Response(404), {}, "status 404"),
        (lambda request: httpx.Response(200, stream=httpx.ByteStream(b"x" * 101)), {}, "more than 100 bytes"),
        (
            lambda request: httpx.Response(200, stream=httpx.ByteStream(b"xy")),
            {"seconds": -1.0},
            "takes too long",
        ),
        (
            lambda request: httpx.Response(
                200, stream=httpx.ByteStream(b"xy"), headers={"Content-Length": "3"}
            ),
            {},
            "2 of 3",
        ),
    ],
)
def test_an_unusable_response_raises_fetch_failed(answer: Answer, limits: dict[str, Any], says: str) -> None:
    with pytest.raises(FetchFailed, match=says):
        get(answer, {"example.org": [PUBLIC]}, **limits)


@pytest.mark.parametrize(
    "begins",
    [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"],
    ids=["nothing", "headers", "a body"],
)
def test_one_who_drips_is_left_when_the_time_is_over(begins: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte would renew a limit of each read alone."""
    monkeypatch.setattr(safe_http, "CONNECT_SECONDS", 600.0)  # that limit is not what ends it here
    left = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            link, _ = server.accept()
            with link:
                link.recv(65536)
                try:
                    link.sendall(begins)
                    while not left.wait(0.05):
                        if begins:
                            link.sendall(b"x")
                except OSError:
                    return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        port = server.getsockname()[1]
        monkeypatch.setattr(safe_http, "PublicPolicy", lambda: PublicPolicy(networks=("127.0.0.0/8",)))
        with (
            pytest.raises(FetchFailed, match=r"takes too long.* within 0\.4 s"),
            download(
                f"http://example.org:{port}/a",
                most_bytes=10**9,
                seconds=0.4,
                resolve=lambda host, port: ["127.0.0.1"],
            ) as chunks,
        ):
            b"".join(chunks)
        left.set()
        thread.join(60)


def test_names_at_one_address_do_not_share_a_connection() -> None:
    """A shared one would skip the certificate check of the second name."""
    connections: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            connections.append(self.client_address)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        policy = EndpointPolicy("http://127.0.0.1")
        transport = CheckedTransport(policy, resolve=lambda host, port: ["127.0.0.1"])
        with httpx.Client(transport=transport) as http:
            for name in ("localhost", "127.0.0.1"):
                assert http.get(f"http://{name}:{server.server_port}/").status_code == 204
        server.shutdown()
    assert len(set(connections)) == 2
