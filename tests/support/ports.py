"""Ports for servers that a test starts a moment later."""

from __future__ import annotations

import socket

_held: list[socket.socket] = []


def reserve_port() -> int:
    """A port of 127.0.0.1 that the system gives to nobody else while this process lives.

    A bound socket that does not listen holds it. A server that sets SO_REUSEADDR, as all of ours do, may listen
    on it all the same; a connection to it is refused until then.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    port: int = holder.getsockname()[1]
    return port
