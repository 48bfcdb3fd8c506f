"""Egress policy of an import: the hub itself, public addresses over HTTPS, and hosts that this node's owner allows.

Hubs redirect downloads to other hosts. Every address is checked, including each redirect, and the connection uses the
checked IP address, so DNS cannot change in between. Behind a proxy, the proxy resolves names and applies its own rules.
"""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address

import httpx

from gpu_agents.hf_import.file_selection import ImportRejected
from oolong.public_address import is_loopback, is_public

Resolve = Callable[[str, int], list[str]]


@dataclass(frozen=True)
class EgressPolicy:
    endpoint: str  # of the hub; set by the control plane's operator
    hosts: frozenset[str] = frozenset()  # set by this node's operator

    def deny_reason(self, url: httpx.URL, addresses: Sequence[str]) -> str:
        """Return why a request is denied, or "". `addresses` is empty if a proxy resolves the name."""
        hub = httpx.URL(self.endpoint)
        here = is_loopback(hub.host)  # a hub on this machine is for development
        local = is_loopback(url.host) or (bool(addresses) and all(map(is_loopback, addresses)))
        if url.scheme != "https" and not (url.scheme == "http" and here and local):
            return f"{without_query(url)}: models are downloaded over https only, except from this machine"
        if (url.host, url.port) == (hub.host, hub.port) or url.host in self.hosts or (here and local):
            return ""
        for address in ["127.0.0.1"] if is_loopback(url.host) else addresses:
            if not is_public(address):
                # The IP address is not disclosed: users need not learn the structure of this network.
                return (
                    f"the hub redirects to {url.host!r}, which has no public address; to allow it, start the node's "
                    f"agent with --hub-host {url.host}"
                )
        return ""


def without_query(url: httpx.URL) -> str:
    """The URL without its query, which may contain a signature."""
    return f"{url.scheme}://{url.netloc.decode()}{url.path}"


def resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class EgressTransport(httpx.BaseTransport):
    """Checks every request against the policy, including redirects. Raises ImportRejected before sending."""

    def __init__(
        self, policy: EgressPolicy, *, resolve: Resolve = resolve, direct: httpx.BaseTransport | None = None
    ) -> None:
        self._policy, self._resolve = policy, resolve
        self._direct = direct or httpx.HTTPTransport()
        self._proxied: dict[str, httpx.HTTPTransport] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        if proxy := _proxy_of(url):
            self._check(url, [url.host] if _is_ip_address(url.host) else [])
            transport = self._proxied.setdefault(proxy, httpx.HTTPTransport(proxy=proxy))
            return transport.handle_request(request)
        try:
            addresses = self._resolve(url.host, url.port or {"http": 80, "https": 443}.get(url.scheme, 443))
        except (OSError, UnicodeError) as error:
            raise httpx.ConnectError(f"{url.host!r} cannot be resolved: {error}", request=request) from error
        self._check(url, addresses)
        pinned = httpx.Request(
            request.method, url.copy_with(host=addresses[0]), headers=request.headers, stream=request.stream,
            extensions={**request.extensions, "sni_hostname": url.host},
        )  # fmt: skip
        return self._direct.handle_request(pinned)

    def close(self) -> None:
        for transport in (self._direct, *self._proxied.values()):
            transport.close()

    def _check(self, url: httpx.URL, addresses: Sequence[str]) -> None:
        if why := self._policy.deny_reason(url, addresses):
            raise ImportRejected(why)


def _proxy_of(url: httpx.URL) -> str:
    """The proxy from the environment, or ""."""
    if urllib.request.proxy_bypass(url.host):
        return ""
    return urllib.request.getproxies_environment().get(url.scheme, "")


def _is_ip_address(host: str) -> bool:
    with suppress(ValueError):
        return bool(ip_address(host))
    return False
