"""Which URLs a webhook may have: https on the open internet, and networks that this installation allows.

The name is resolved at every delivery, every address behind it must be allowed, and the connection goes to the number
that was checked: a name server that answers differently a moment later changes nothing. Redirects are not followed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from control_plane.core.security.safe_http import (
    PORTS,
    AddressBlocked,
    FetchFailed,
    Resolve,
    blocked,
    resolve,
)
from oolong.public_address import is_public


@dataclass(frozen=True)
class WebhookTarget:
    scheme: str
    host: str
    address: str  # the number that is connected to
    port: int
    path: str  # with the query

    @property
    def pinned_url(self) -> str:
        number = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.scheme}://{number}:{self.port}{self.path}"

    @property
    def host_header(self) -> str:
        usual = {"http": 80, "https": 443}[self.scheme]
        return self.host if self.port == usual else f"{self.host}:{self.port}"


def resolve_target(url: str, *, networks: Sequence[str] = (), resolve: Resolve = resolve) -> WebhookTarget:
    """The address behind a URL. Raises AddressBlocked for one that may not be called, FetchFailed for none at all."""
    if not all(character.isprintable() and character != " " for character in url):
        raise AddressBlocked(f"{url!r} has a space or a control character; write it as %20 or leave it out")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise AddressBlocked(f"{url!r} is no URL: {error}") from error
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not host:
        raise AddressBlocked(f"{url!r}: a webhook is an https:// address")
    if not host.isascii():
        raise AddressBlocked(f"{host!r} is no host name in ASCII; write it in its xn-- form (Punycode)")
    if parts.username is not None or parts.password is not None:
        raise AddressBlocked("a URL with a user name or a password is refused; it would be kept and shown")
    port = port or {"http": 80, "https": 443}[parts.scheme]
    try:
        addresses = resolve(host, port)
    except (OSError, UnicodeError) as error:
        raise FetchFailed(f"{host!r} has no address: {error}") from error
    if not addresses:
        raise FetchFailed(f"{host!r} has no address")
    if not all(_is_allowed(address, networks) for address in addresses):
        _require_public(parts.scheme, host, port, addresses)
    path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    return WebhookTarget(parts.scheme, host, addresses[0], port, path)


def _require_public(scheme: str, host: str, port: int, addresses: Sequence[str]) -> None:
    for address in addresses:
        if not is_public(address):
            unless = ", nor in a network that this installation allows (OOLONG_WEBHOOK_NETWORKS)"
            raise blocked(host, address, unless)
    if scheme != "https":
        raise AddressBlocked(f"{host!r} is on the open internet: only https:// goes there")
    if port not in PORTS:
        raise AddressBlocked(f"port {port} of {host!r} is refused; only {' and '.join(map(str, PORTS))}")


def _is_allowed(address: str, networks: Sequence[str]) -> bool:
    try:
        number = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return any(number in ipaddress.ip_network(network, strict=False) for network in networks)
