"""HTTP requests to addresses that somebody else names: checked by a policy, and sent to exactly the checked address.

A name is resolved once for each request, and again for each redirect. The policy sees the URL and every address of
the name; the connection goes to one of these by number, with the name only in the Host header and the TLS handshake.
A second answer of the name server changes nothing. Every such request of the control plane and of agents takes this
way: webhooks, dataset and model imports, the identity provider, remote rewards.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import httpx

from oolong.public_address import is_loopback, is_public
from oolong.system.socket_deadline import SocketDeadline, close_after

log = logging.getLogger(__name__)

PORTS = (443, 8443)  # of public addresses that users name
DEFAULT_PORTS = {"http": 80, "https": 443}
REDIRECTS = 5
CONNECT_SECONDS = 10.0

Resolve = Callable[[str, int], list[str]]


class AddressBlocked(Exception):
    """A policy forbids the address. The message names what the user named, not where that leads."""


class FetchFailed(Exception):
    """The address is allowed, but gave nothing usable."""


class Policy(Protocol):
    def check(self, url: httpx.URL, addresses: Sequence[str]) -> None:
        """Raise AddressBlocked if the URL must not be requested.

        `addresses` is empty before the name is resolved, and where a proxy resolves it.
        """


@dataclass(frozen=True)
class PublicPolicy:
    """Public addresses over https; any port and plain http in `networks`, which the installation's owner allows."""

    networks: tuple[str, ...] = ()
    otherwise: str = ""  # how to allow an address, for the message

    def check(self, url: httpx.URL, addresses: Sequence[str]) -> None:
        if url.scheme not in DEFAULT_PORTS or not url.host:
            raise AddressBlocked(f"{str(url)!r}: only https:// is allowed")
        if url.userinfo:
            raise AddressBlocked(
                "a URL with a user name or a password is refused; it would be kept and shown"
            )
        if self.networks and (not addresses or all(self._is_allowed(address) for address in addresses)):
            return
        for address in addresses:
            if not is_public(address):
                raise blocked(url.host, address, self.otherwise)
        if url.scheme != "https":
            raise AddressBlocked(f"{url.host!r} is on the open internet: only https:// goes there")
        if (url.port or 443) not in PORTS:
            raise AddressBlocked(
                f"port {url.port} of {url.host!r} is refused; only {' and '.join(map(str, PORTS))}"
            )

    def _is_allowed(self, address: str) -> bool:
        try:
            number = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(number in ipaddress.ip_network(network, strict=False) for network in self.networks)


@dataclass(frozen=True)
class EndpointPolicy:
    """A service that an operator configured, with what it leads to: itself, public https, and hosts named here."""

    endpoint: str
    hosts: frozenset[str] = frozenset()
    how_to_allow: str = ""  # a format of {host}, for the message

    def check(self, url: httpx.URL, addresses: Sequence[str]) -> None:
        configured = httpx.URL(self.endpoint)
        here = is_loopback(configured.host)  # a service on this machine is for development
        local = is_loopback(url.host) or (bool(addresses) and all(map(is_loopback, addresses)))
        if url.scheme != "https" and not (url.scheme == "http" and here and local):
            raise AddressBlocked(
                f"{without_query(url)}: only https:// is allowed, except for a service on this machine"
            )
        same = (url.host, url.port) == (configured.host, configured.port)
        if same or url.host in self.hosts or (here and local):
            return
        for address in ["127.0.0.1"] if is_loopback(url.host) else addresses:
            if not is_public(address):
                raise blocked(url.host, address, self.how_to_allow.format(host=url.host))


@dataclass(frozen=True)
class OriginPolicy:
    """The origins that an operator listed, wherever they are, and nothing else."""

    origins: frozenset[str]  # as `origin_of` writes them
    how_to_allow: str = ""  # a format of {origin}, for the message

    def check(self, url: httpx.URL, addresses: Sequence[str]) -> None:
        if url.scheme not in DEFAULT_PORTS or not url.host:
            raise AddressBlocked(f"{without_query(url)!r}: only http:// and https:// are allowed")
        if url.userinfo:
            raise AddressBlocked(
                "a URL with a user name or a password is refused; it would be kept and shown"
            )
        origin = origin_of(url)
        if origin not in self.origins:
            listed = ", ".join(sorted(self.origins)) or "none"
            raise AddressBlocked(
                f"{origin} is not among the allowed origins ({listed}){self.how_to_allow.format(origin=origin)}"
            )


def origin_of(url: httpx.URL) -> str:
    """`https://host`, with the port where it is not the scheme's usual one."""
    host = f"[{url.host}]" if ":" in url.host else url.host.lower()
    port = url.port or DEFAULT_PORTS.get(url.scheme)
    return f"{url.scheme}://{host}" + ("" if port == DEFAULT_PORTS.get(url.scheme) else f":{port}")


def blocked(host: str, address: str, otherwise: str) -> AddressBlocked:
    """Only the log says where a name leads: users need not learn the structure of this network."""
    log.warning("refused: %r has the address %s, which is not a public one", host, address)
    return AddressBlocked(f"{host!r} is not at a public address{otherwise}")


def without_query(url: httpx.URL) -> str:
    """The URL without its query, which may contain a signature."""
    return f"{url.scheme}://{url.netloc.decode()}{url.path}"


def resolve_name(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def parse_url(text: str) -> httpx.URL:
    """Raises AddressBlocked for text that is not a URL."""
    try:
        return httpx.URL(text)
    except httpx.InvalidURL as error:
        raise AddressBlocked(f"{text!r} is no URL: {error}") from error


def checked_addresses(url: httpx.URL, policy: Policy, resolve: Resolve = resolve_name) -> list[str]:
    """The addresses of a URL's host. Raises AddressBlocked, or FetchFailed if there are none."""
    policy.check(url, ())
    try:
        addresses = resolve(url.raw_host.decode(), url.port or DEFAULT_PORTS[url.scheme])
    except (OSError, UnicodeError) as error:
        raise FetchFailed(f"{url.host!r} has no address: {error}") from error
    if not addresses:
        raise FetchFailed(f"{url.host!r} has no address")
    policy.check(url, addresses)
    return addresses


class CheckedTransport(httpx.BaseTransport):
    """Checks each request, a redirected one too, and raises AddressBlocked before anything is sent.

    With `through_proxy`, a proxy of the environment resolves the names and applies its own rules; the policy then
    sees only addresses that a URL names as numbers.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        resolve: Resolve = resolve_name,
        direct: httpx.BaseTransport | None = None,
        through_proxy: bool = False,
    ) -> None:
        self._policy, self._resolve, self._through_proxy = policy, resolve, through_proxy
        # A connection belongs to the name in its TLS handshake, and is pooled by its address: never use it again.
        self._direct = direct or httpx.HTTPTransport(limits=httpx.Limits(max_keepalive_connections=0))
        self._proxied: dict[str, httpx.HTTPTransport] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        if self._through_proxy and (proxy := _proxy_of(url)):
            self._policy.check(url, [url.host] if _is_ip_address(url.host) else [])
            transport = self._proxied.setdefault(proxy, httpx.HTTPTransport(proxy=proxy))
            return transport.handle_request(request)
        try:
            address = checked_addresses(url, self._policy, self._resolve)[0]
            pinned_url = url.copy_with(host=address)
        except (FetchFailed, httpx.InvalidURL) as error:
            raise httpx.ConnectError(str(error), request=request) from error
        name = {"sni_hostname": url.raw_host.decode()} if url.scheme == "https" else {}
        pinned = httpx.Request(
            request.method, pinned_url, headers=request.headers, stream=request.stream,
            extensions={**request.extensions, **name},
        )  # fmt: skip
        return self._direct.handle_request(pinned)

    def close(self) -> None:
        for transport in (self._direct, *self._proxied.values()):
            transport.close()


def _proxy_of(url: httpx.URL) -> str:
    """The proxy from the environment, or ""."""
    if urllib.request.proxy_bypass(url.host):
        return ""
    return urllib.request.getproxies_environment().get(url.scheme, "")


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@contextmanager
def download(
    url: str,
    *,
    most_bytes: int,
    seconds: float,
    resolve: Resolve = resolve_name,
    transport: httpx.BaseTransport | None = None,
    authorization: str = "",
) -> Iterator[Iterator[bytes]]:
    """The body of a public https address, in chunks, as it is sent.

    `authorization` goes to the host and port of `url` alone: a redirect to another does not take it along.

    Raises AddressBlocked, before anything is asked, and FetchFailed for an answer other than 200, too many
    bytes, or more than `seconds` from the first name to the last byte, redirects and headers among them.
    """
    # Nothing of this machine's own goes along: no proxy, no .netrc, no cookie.
    with (
        close_after(seconds) as cut,
        httpx.Client(
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(CONNECT_SECONDS),
            transport=CheckedTransport(PublicPolicy(), resolve=resolve, direct=transport),
        ) as http,
    ):
        headers = {"Accept-Encoding": "identity", "User-Agent": "oolong"}
        if authorization:
            headers["Authorization"] = authorization
        request = http.build_request("GET", parse_url(url), headers=headers, extensions={"trace": cut.watch})
        # By hand: httpx would read the whole body of each redirect.
        for _ in range(REDIRECTS + 1):
            response = _sent(http, request, cut, seconds=seconds)
            try:
                if response.next_request is not None:
                    request = response.next_request
                    continue
                if response.status_code != 200:
                    raise FetchFailed(f"{request.url} answers with status {response.status_code}")
                yield _bounded(response, cut, most_bytes=most_bytes, seconds=seconds)
                return
            finally:
                response.close()
        raise FetchFailed(f"{url} leads on more than {REDIRECTS} times")


def _sent(
    http: httpx.Client, request: httpx.Request, cut: SocketDeadline, *, seconds: float
) -> httpx.Response:
    """The head of the answer."""
    late = f"{request.url} takes too long: no answer within {seconds:g} s"
    try:
        response = http.send(request, stream=True)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = late if cut.done.is_set() else f"{request.url}: {error or type(error).__name__}"
        raise FetchFailed(why) from error
    if cut.done.is_set():
        response.close()
        raise FetchFailed(late)
    return response


def _bounded(
    response: httpx.Response, cut: SocketDeadline, *, most_bytes: int, seconds: float
) -> Iterator[bytes]:
    url, size = response.url, 0

    def late() -> FetchFailed:
        return FetchFailed(f"{url} takes too long: {size} bytes within {seconds:g} s")

    try:
        for chunk in response.iter_raw():
            size += len(chunk)
            if size > most_bytes:
                raise FetchFailed(f"{url} has more than {most_bytes} bytes")
            if cut.done.is_set():
                raise late()
            yield chunk
    except httpx.HTTPError as error:
        if cut.done.is_set():
            raise late() from error
        raise FetchFailed(f"{url} ended after {size} bytes: {error or type(error).__name__}") from error
    if cut.done.is_set():
        raise late()  # the cut itself may look like its end
    expected = response.headers.get("Content-Length", "")
    if expected.isdecimal() and int(expected) != size:
        raise FetchFailed(f"{url} ended after {size} of {expected} bytes")
