"""Decides which addresses are public. Check here before connecting to an address from untrusted input."""

from __future__ import annotations

import ipaddress


def is_public(text: str) -> bool:
    """Whether an address is public, including any address embedded in it."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address in _TRANSLATED:
            return is_public(str(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)))
        for inner in (address.ipv4_mapped, address.sixtofour, address.teredo and address.teredo[1]):
            if inner:
                return is_public(str(inner))
    return address.is_global and not address.is_multicast and not address.is_reserved


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine itself."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")  # NAT64: the last 32 bits are an IPv4 address
