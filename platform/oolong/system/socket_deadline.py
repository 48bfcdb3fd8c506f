"""A deadline for a whole HTTP exchange. A read timeout is not enough: each byte renews it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any


class SocketDeadline:
    """Shuts down a socket that another thread is reading."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self._connection: socket.socket | None = None
        self._lock = threading.Lock()

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """The trace callback of httpcore. The duplicate stays valid when TLS wraps the socket."""
        if event == "connection.connect_tcp.complete":
            with self._lock:
                self._forget()  # the socket of the previous redirect
                self._connection = info["return_value"].get_extra_info("socket").dup()
            if self.done.is_set():
                self.now()

    def now(self) -> None:
        self.done.set()
        with self._lock:
            if self._connection is not None:
                with suppress(OSError):  # the peer has closed it already
                    self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def close_after(seconds: float) -> Iterator[SocketDeadline]:
    """Pass `extensions={"trace": deadline.watch}` to a request. `deadline.done` is set when the deadline passed."""
    deadline = SocketDeadline()
    timer = threading.Timer(seconds, deadline.now)
    timer.daemon = True
    timer.start()
    try:
        yield deadline
    finally:
        timer.cancel()
        deadline.close()
