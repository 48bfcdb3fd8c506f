"""Where a hub may lead: the hub itself, the open internet over https, and hosts that this node's owner named.

A hub answers with redirects, and what answers may be anybody's. So each address is checked, the first as any redirect,
and the connection goes to the number that was checked. Behind a proxy the proxy resolves names, and its rules hold.
"""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address

import httpx

from gpu_agents.hub.selection import HubRefused
from oolong.public_address import is_loopback, is_public

Resolve = Callable[[str, int], list[str]]


@dataclass(frozen=True)
class Reach:
    endpoint: str  # of the hub; whoever runs the control plane named it
    hosts: frozenset[str] = frozenset()  # whoever runs this node named them

    def refusal_of(self, url: httpx.URL, addresses: Sequence[str]) -> str:
        """Why this may not be asked; "" when it may. No addresses: a proxy knows them."""
        hub = httpx.URL(self.endpoint)
        here = is_loopback(hub.host)  # a hub on this machine is for trying things out
        local = is_loopback(url.host) or (bool(addresses) and all(map(is_loopback, addresses)))
        if url.scheme != "https" and not (url.scheme == "http" and here and local):
            return f"{shown(url)}: outside of this machine models come over https only"
        if (url.host, url.port) == (hub.host, hub.port) or url.host in self.hosts or (here and local):
            return ""
        for address in ["127.0.0.1"] if is_loopback(url.host) else addresses:
            if not is_public(address):
                # The number itself is not said: who imports need not learn how this network is built.
                return (
                    f"the hub leads to {url.host!r}, which is not at a public address; if that is meant, "
                    f"start the node's agent with --hub-host {url.host}"
                )
        return ""


def shown(url: httpx.URL) -> str:
    """Without its query, which may be a signature that opens it."""
    return f"{url.scheme}://{url.netloc.decode()}{url.path}"


def resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class CheckedTransport(httpx.BaseTransport):
    """Every request of an importer, redirects among them. Raises HubRefused before anything is sent."""

    def __init__(
        self, reach: Reach, *, resolve: Resolve = resolve, direct: httpx.BaseTransport | None = None
    ) -> None:
        self._reach, self._resolve = reach, resolve
        self._direct = direct or httpx.HTTPTransport()
        self._proxied: dict[str, httpx.HTTPTransport] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        if proxy := _proxy_of(url):
            self._check(url, [url.host] if _is_number(url.host) else [])
            transport = self._proxied.setdefault(proxy, httpx.HTTPTransport(proxy=proxy))
            return transport.handle_request(request)
        try:
            addresses = self._resolve(url.host, url.port or {"http": 80, "https": 443}.get(url.scheme, 443))
        except (OSError, UnicodeError) as error:
            raise httpx.ConnectError(f"{url.host!r} has no address: {error}", request=request) from error
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
        if why := self._reach.refusal_of(url, addresses):
            raise HubRefused(why)


def _proxy_of(url: httpx.URL) -> str:
    """As the environment says; "" for none."""
    if urllib.request.proxy_bypass(url.host):
        return ""
    return urllib.request.getproxies_environment().get(url.scheme, "")


def _is_number(host: str) -> bool:
    with suppress(ValueError):
        return bool(ip_address(host))
    return False
