"""Where processes listen for connections, as the kernel has it."""

from __future__ import annotations

import contextlib
import ipaddress

import psutil


def listeners(pid: int) -> list[tuple[str, str, int]]:
    """Command name, address and port of each TCP socket on which a process or one below it listens."""
    root = psutil.Process(pid)
    found = []
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended
            found += [
                (process.name(), str(connection.laddr.ip), int(connection.laddr.port))
                for connection in process.net_connections("tcp")
                if connection.status == psutil.CONN_LISTEN
            ]
    return found


def beyond_loopback(pid: int) -> list[tuple[str, str, int]]:
    """Those of them that another machine may reach."""
    return [found for found in listeners(pid) if not _address(found[1]).is_loopback]


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address
