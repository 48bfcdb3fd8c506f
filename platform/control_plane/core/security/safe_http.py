"""Requests to addresses that a user names: public ones only, and exactly the address that was checked.

A name is resolved once. Every address that it has must be public, and the connection goes to one of them by
number, with the name only in the Host header and the TLS handshake: a second answer of the name server changes
nothing. Redirects are followed by hand, each checked the same way. No proxy and no credential goes along.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit, urlunsplit

import httpx

from control_plane.core.security.deadline import SocketDeadline, close_after
from oolong.public_address import is_public

log = logging.getLogger(__name__)

PORTS = (443, 8443)
REDIRECTS = 5
CONNECT_SECONDS = 10.0

Resolve = Callable[[str, int], list[str]]


class AddressBlocked(Exception):
    """The address may not be asked; the message says why, with what the user named and not with where it leads."""


def blocked(host: str, address: str, unless: str = "") -> AddressBlocked:
    """Where a name leads inside of this network is for the server's log, not for whoever tries names."""
    log.warning("refused: %r has the address %s, which is not a public one", host, address)
    return AddressBlocked(f"{host!r} is not at a public address{unless}")


class FetchFailed(Exception):
    """It may be asked, and gave nothing that can be used."""


@dataclass(frozen=True)
class PinnedTarget:
    """One checked address."""

    url: str  # as the user named it, for messages
    address: str  # the number that is connected to
    host: str
    port: int
    path: str  # with the query

    @property
    def pinned_url(self) -> str:
        number = f"[{self.address}]" if ":" in self.address else self.address
        return f"https://{number}:{self.port}{self.path}"

    @property
    def host_header(self) -> str:
        return self.host if self.port == 443 else f"{self.host}:{self.port}"


def resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def resolve_public(url: str, resolve: Resolve = resolve) -> PinnedTarget:
    """The address behind a URL. Raises AddressBlocked for anything but https to a public one."""
    try:
        parts = urlsplit(url)
        port = parts.port or 443
    except ValueError as error:
        raise AddressBlocked(f"{url!r} is no URL: {error}") from error
    host = parts.hostname or ""
    if parts.scheme != "https" or not host:
        raise AddressBlocked(f"{url!r}: only https:// is fetched")
    if parts.username is not None or parts.password is not None:
        raise AddressBlocked(
            "a URL with a user name or a password is not fetched; it would be kept and shown"
        )
    if port not in PORTS:
        raise AddressBlocked(
            f"port {port} of {host!r} is not fetched from; only {' and '.join(map(str, PORTS))}"
        )
    try:
        addresses = resolve(host, port)
    except (OSError, UnicodeError) as error:
        raise FetchFailed(f"{host!r} has no address: {error}") from error
    if not addresses:
        raise FetchFailed(f"{host!r} has no address")
    for address in addresses:
        if not is_public(address):
            raise blocked(host, address)
    path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    return PinnedTarget(url, addresses[0], host, port, path)


@contextmanager
def download(
    url: str,
    *,
    most_bytes: int,
    seconds: float,
    resolve: Resolve = resolve,
    transport: httpx.BaseTransport | None = None,
    authorization: str = "",
) -> Iterator[Iterator[bytes]]:
    """The body of a public https address, in chunks, as it is sent.

    `authorization` goes to the host and port of `url` alone: a redirect to another does not take it along.

    Raises AddressBlocked, before anything is asked, and FetchFailed for an answer other than 200, too many
    bytes, or more than `seconds` from the first name to the last byte, redirects and headers among them.
    """
    began = time.monotonic()
    first = target = resolve_public(url, resolve)
    left = began + seconds - time.monotonic()
    if left <= 0:
        raise FetchFailed(f"{url} takes too long: its name was not resolved within {seconds:g} s")
    # Nothing of this machine's own goes along: no proxy, no .netrc, no cookie.
    with (
        close_after(left) as cut,
        httpx.Client(
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(CONNECT_SECONDS),
            transport=transport,
        ) as http,
    ):
        for _ in range(REDIRECTS + 1):
            headers = {"Host": target.host_header, "Accept-Encoding": "identity", "User-Agent": "oolong"}
            if authorization and target.host_header == first.host_header:
                headers["Authorization"] = authorization
            request = http.build_request(
                "GET", target.pinned_url, headers=headers,
                extensions={"sni_hostname": target.host, "trace": cut.watch},
            )  # fmt: skip
            response = _sent(http, request, target, cut, seconds=seconds)
            try:
                if response.has_redirect_location:
                    target = resolve_public(urljoin(target.url, response.headers["Location"]), resolve)
                    continue
                if response.status_code != 200:
                    raise FetchFailed(f"{target.url} answers with status {response.status_code}")
                yield _bounded(response, target, cut, most_bytes=most_bytes, seconds=seconds)
                return
            finally:
                response.close()
        raise FetchFailed(f"{url} leads on more than {REDIRECTS} times")


def _sent(
    http: httpx.Client, request: httpx.Request, target: PinnedTarget, cut: SocketDeadline, *, seconds: float
) -> httpx.Response:
    """The head of the answer."""
    late = f"{target.url} takes too long: no answer within {seconds:g} s"
    if cut.done.is_set():
        raise FetchFailed(late)
    try:
        return http.send(request, stream=True)
    except httpx.HTTPError as error:
        why = late if cut.done.is_set() else f"{target.url}: {error or type(error).__name__}"
        raise FetchFailed(why) from error


def _bounded(
    response: httpx.Response, target: PinnedTarget, cut: SocketDeadline, *, most_bytes: int, seconds: float
) -> Iterator[bytes]:
    size = 0

    def late() -> FetchFailed:
        return FetchFailed(f"{target.url} takes too long: {size} bytes within {seconds:g} s")

    try:
        for chunk in response.iter_raw():
            size += len(chunk)
            if size > most_bytes:
                raise FetchFailed(f"{target.url} has more than {most_bytes} bytes")
            if cut.done.is_set():
                raise late()
            yield chunk
    except httpx.HTTPError as error:
        if cut.done.is_set():
            raise late() from error
        raise FetchFailed(
            f"{target.url} ended after {size} bytes: {error or type(error).__name__}"
        ) from error
    if cut.done.is_set():
        raise late()  # the cut itself may look like its end
    expected = response.headers.get("Content-Length", "")
    if expected.isdecimal() and int(expected) != size:
        raise FetchFailed(f"{target.url} ended after {size} of {expected} bytes")
