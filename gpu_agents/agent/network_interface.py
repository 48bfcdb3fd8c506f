"""Finds the network interface of an address of this machine."""

from __future__ import annotations

import ipaddress

import psutil


def interface_of(address: str) -> str:
    """The interface with this address; of every loopback address, the one with 127.0.0.1. Raises OSError when there is
    none."""
    wanted = ipaddress.ip_address(address)
    loopback = ipaddress.ip_address("127.0.0.1")
    named = {wanted, loopback} if wanted.version == 4 and wanted.is_loopback else {wanted}
    for name, addresses in sorted(psutil.net_if_addrs().items()):
        for one in addresses:
            try:
                found = ipaddress.ip_address(one.address.partition("%")[0])
            except ValueError:
                continue  # a hardware address
            if found in named:
                return name
    raise OSError(f"no network interface of this machine has the peer address {address}")
