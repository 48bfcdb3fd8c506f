"""Which URLs a webhook may have: https on the open internet, and networks that this installation allows."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from oolong.system.safe_http import (
    AddressBlocked,
    PublicPolicy,
    Resolve,
    checked_addresses,
    parse_url,
    resolve_name,
)


def webhook_policy(networks: Sequence[str]) -> PublicPolicy:
    otherwise = ", nor in a network that this installation allows (OOLONG_WEBHOOK_NETWORKS)"
    return PublicPolicy(tuple(networks), otherwise)


def parse_webhook_url(text: str) -> httpx.URL:
    """Raises AddressBlocked for text that is not a URL in ASCII."""
    if not all(character.isprintable() and character != " " for character in text):
        raise AddressBlocked(f"{text!r} has a space or a control character; write it as %20 or leave it out")
    url = parse_url(text)
    if not url.host.isascii():
        raise AddressBlocked(f"{url.host!r} is no host name in ASCII; write it in its xn-- form (Punycode)")
    return url


def check_url(url: str, *, networks: Sequence[str] = (), resolve: Resolve = resolve_name) -> None:
    """Raises AddressBlocked for a URL that may not be called, FetchFailed for one without an address."""
    checked_addresses(parse_webhook_url(url), webhook_policy(networks), resolve)
